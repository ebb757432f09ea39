/* The runtime of guarded sources of C and C++, which the compiler is told to include: which mutant is on in this
 * process, how often places are reached, and the limit of that. All is weak: a program has it once, for both
 * languages. The variables are those of the runtime for Rust, and as there, a process without them has those of the
 * process that has started it. */
#ifndef HEELER_GUARD_H
#define HEELER_GUARD_H

#ifdef __cplusplus
extern "C" {
#endif

/* The mutant that is on; 0 for none. */
__attribute__((weak)) unsigned __hg_on = 0;
/* 0 before the environment is read, 1 if nothing is counted, 2 if places are. */
__attribute__((weak)) int __hg_state = 0;
__attribute__((weak)) unsigned long long __hg_hits = 0, __hg_hit_limit = ~0ULL;
__attribute__((weak)) unsigned long long __hg_steps = 0, __hg_step_limit = ~0ULL;
__attribute__((weak)) unsigned *__hg_counts = 0;
__attribute__((weak)) unsigned __hg_count_number = 0;

/* Under names of their own: a program may declare these in other ways, or call its own functions so. */
extern char *__hg_getenv(const char *) __asm__("getenv");
extern void __hg_exit(int) __asm__("_exit") __attribute__((noreturn));
extern void (*__hg_signal(int, void (*)(int)))(int) __asm__("signal");
extern int __hg_raise(int) __asm__("raise");
extern int __hg_open(const char *, int, ...) __asm__("open");
extern int __hg_close(int) __asm__("close");
extern long __hg_read(int, void *, unsigned long) __asm__("read");
extern long __hg_lseek(int, long, int) __asm__("lseek");
extern void *__hg_mmap(void *, unsigned long, int, int, int, long) __asm__("mmap");

/* Ends the process at a limit. By a signal: the exit code of a test program is its verdict. */
__attribute__((weak, noinline, cold)) void __hg_end(int signal, int code) {
  __hg_signal(signal, (void (*)(int))0 /* SIG_DFL */);
  __hg_raise(signal);
  __hg_exit(code);
}

/* What a process above has, by variable: numbers as text, and the file. Empty for what it does not have. */
__attribute__((weak)) char __hg_values[4][4160];
/* 1 if this process has variables of its own. */
__attribute__((weak)) int __hg_has_own = 1;

__attribute__((weak, noinline, cold)) const char *__hg_name(int variable) {
  if (variable == 0) return "HEELER_MUTANT";
  if (variable == 1) return "HEELER_MUTANT_HITS";
  return variable == 2 ? "HEELER_MUTANT_STEPS" : "HEELER_MUTANT_COVERAGE";
}

/* Keeps `NAME=VALUE` if it is one of the variables; returns whether each process has it or another. */
__attribute__((weak, noinline, cold)) int __hg_keep(const char *entry) {
  int variable, at;
  for (variable = 0; variable < 4; ++variable) {
    const char *name = __hg_name(variable);
    for (at = 0; name[at] && entry[at] == name[at]; ++at) {}
    if (!name[at] && entry[at] == '=') {
      char *value = __hg_values[variable];
      for (++at; (*value++ = entry[at]) != 0; ++at) {}
      return variable == 0 || variable == 3;
    }
  }
  return 0;
}

/* Opens a file of a process: of this one for 0. */
__attribute__((weak, noinline, cold)) int __hg_open_of(unsigned long process, const char *file) {
  char path[64], digits[24];
  const char *part = "/proc/";
  int length = 0, number = 0;
  while (*part) path[length++] = *part++;
  for (part = "self"; !process && *part; ++part) path[length++] = *part;
  for (; process; process /= 10) digits[number++] = (char)('0' + process % 10);
  while (number) path[length++] = digits[--number];
  while (*file) path[length++] = *file++;
  path[length] = 0;
  return __hg_open(path, 0 /* O_RDONLY */);
}

/* Takes the variables of a process above; returns whether it has them. */
__attribute__((weak, noinline, cold)) int __hg_take(unsigned long process) {
  char chunk[512], entry[4160];
  long got, at;
  unsigned long length = 0;
  int found = 0, descriptor = __hg_open_of(process, "/environ");
  if (descriptor < 0) return 0;
  while ((got = __hg_read(descriptor, chunk, sizeof chunk)) > 0) {
    for (at = 0; at < got; ++at) {
      /* A longer one is none of them. */
      if (length < sizeof entry) entry[length++] = chunk[at];
      if (chunk[at]) continue;
      entry[length - 1] = 0;
      found |= __hg_keep(entry);
      length = 0;
    }
  }
  __hg_close(descriptor);
  return found;
}

/* Returns the process that has started another: of this one for 0; 0 if it is the first one, or unknown. */
__attribute__((weak, noinline, cold)) unsigned long __hg_parent(unsigned long process) {
  char text[256];
  long length, at;
  unsigned long parent = 0;
  int descriptor = __hg_open_of(process, "/stat");
  if (descriptor < 0) return 0;
  length = __hg_read(descriptor, text, sizeof text);
  __hg_close(descriptor);
  /* The program's name is in brackets, and may have some itself: `) S PARENT` is behind it. */
  for (at = length - 1; at > 0 && text[at] != ')'; --at) {}
  for (at += 4; at > 4 && at < length && text[at] >= '0' && text[at] <= '9'; ++at)
    parent = parent * 10 + (unsigned long)(text[at] - '0');
  return parent;
}

__attribute__((weak, noinline, cold)) void __hg_find(void) {
  unsigned long process = 0;
  int left = 64;
  if (__hg_getenv(__hg_name(0)) || __hg_getenv(__hg_name(3))) return;
  __hg_has_own = 0;
  while (left-- && (process = __hg_parent(process)) && !__hg_take(process)) {}
}

/* Returns a variable; 0 if there is none. */
__attribute__((weak, noinline, cold)) const char *__hg_variable(int variable) {
  if (__hg_has_own) return __hg_getenv(__hg_name(variable));
  return __hg_values[variable][0] ? __hg_values[variable] : 0;
}

__attribute__((weak, noinline, cold)) unsigned long long __hg_number(int variable, unsigned long long otherwise) {
  const char *text = __hg_variable(variable);
  unsigned long long value = 0;
  if (!text || !*text) return otherwise;
  for (; *text; ++text) {
    if (*text < '0' || *text > '9') return otherwise;
    value = value * 10 + (unsigned long long)(*text - '0');
  }
  return value;
}

__attribute__((weak, noinline, cold)) void __hg_begin(void) {
  const char *file;
  __hg_find();
  file = __hg_variable(3);
  __hg_on = (unsigned)__hg_number(0, 0);
  __hg_hit_limit = __hg_number(1, ~0ULL);
  __hg_step_limit = __hg_number(2, ~0ULL);
  __hg_state = 1;
  if (file) {
    int descriptor = __hg_open(file, 2 /* O_RDWR */);
    if (descriptor >= 0) {
      long size = __hg_lseek(descriptor, 0, 2 /* SEEK_END */);
      if (size >= 4) {
        void *mapped = __hg_mmap(0, (unsigned long)size, 3 /* read, write */, 1 /* MAP_SHARED */, descriptor, 0);
        if (mapped != (void *)-1) {
          __hg_counts = (unsigned *)mapped;
          __hg_count_number = (unsigned)(size / 4);
          __hg_state = 2;
        }
      }
      __hg_close(descriptor);
    }
  }
}

__attribute__((weak, noinline, cold)) void __hg_reach(unsigned base, unsigned count) {
  unsigned place;
  if (__hg_counts[0] != ~0U) __hg_counts[0]++;
  if (!count && base) count = 1; /* a call of a function */
  for (place = base; place < base + count && place < __hg_count_number; ++place)
    if (__hg_counts[place] != ~0U) __hg_counts[place]++;
}

/* Which mutant of a place is on, from 1; 0 for the original. The place's mutants have the numbers from `base` on. */
__attribute__((weak, noinline)) unsigned __hg_at(unsigned base, unsigned count) {
  unsigned offset;
  if (!__hg_state) __hg_begin();
  if (__hg_state == 2) {
    __hg_reach(base, count);
    return 0;
  }
  if (!__hg_on) return 0;
  offset = __hg_on - base;
  if (offset < count) {
    if (__hg_hits++ >= __hg_hit_limit) __hg_end(26 /* SIGVTALRM */, 87);
    return offset + 1;
  }
  if (__hg_steps++ >= __hg_step_limit) __hg_end(27 /* SIGPROF */, 88);
  return 0;
}

#ifdef __cplusplus
}
#endif

#ifndef __cplusplus
#define __hg(base, count) __hg_at(base, count)
#define __hg_is(number) (__hg_on == (number))
#define __HG_TYPE(mutant, original)
#else
/* A mutant has the type of the original. Otherwise both may be converted to a third type, which changes the original. */
template <class Mutant, class Original> struct __hg_has_type_of_original;
template <class Type> struct __hg_has_type_of_original<Type, Type> {};
template <class Type> struct __hg_has_type_of_original<Type, const Type> {};
template <class Type> struct __hg_has_type_of_original<const Type, Type> {};
#define __HG_TYPE(mutant, original) \
  (void)sizeof(__hg_has_type_of_original<__decltype(mutant), __decltype(original)>),
/* A function may run when the program is compiled: it is the original there. */
#if __cplusplus >= 201103L && __GNUC__ >= 9
#define __HG_FUNCTION __attribute__((always_inline)) constexpr inline
#define __HG_IS_COMPILING __builtin_is_constant_evaluated()
#else
#define __HG_FUNCTION __attribute__((always_inline)) inline
#define __HG_IS_COMPILING 0
#endif
__HG_FUNCTION unsigned __hg(unsigned base, unsigned count) {
  return __HG_IS_COMPILING ? 0 : __hg_at(base, count);
}
/* Whether a mutant is on, of a place that was asked for before. */
__HG_FUNCTION bool __hg_is(unsigned number) {
  return __HG_IS_COMPILING ? false : __hg_on == number;
}
#endif
#endif
