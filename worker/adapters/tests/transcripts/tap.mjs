import assert from 'node:assert';
import test from 'node:test';

test('passes', () => {});
test('fails', () => assert.strictEqual(1 + 1, 3));
test('outer', async (context) => {
  await context.test('inner, with # and \\', () => {});
  await context.test('broken', () => {
    throw new Error('two\nlines');
  });
});
test('skipped', { skip: 'no network' }, () => {});
test('later', { todo: 'not done' }, () => {
  throw new Error('expected');
});
