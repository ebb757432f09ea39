# Tests for adapter.sh, with every kind of end.

test_adds() {
  echo "adding"
  [ $((1 + 1)) = 2 ]
}

test_fails() {
  echo "one line of output"
  false
}

test_is_skipped() {
  return 77
}

test_kills_its_process() {
  echo "last words"
  kill -KILL $$
}

test_runs_after_them() {
  true
}
