#!/usr/bin/env bash
# A Heeler adapter for the functions test_* of shell files: a test passes if it returns 0, and is skipped if it returns
# 77. Their names need no escapes in JSON. Specification: docs/frameworks/json-lines.md.
shopt -s extdebug # declare -F prints the lines of functions
for file in "$@"; do source "$file"; done

report() { printf "$1\n" "${@:2}" >&3; } # FORMAT ARGUMENT…

run_test() { # INDEX NAME
  report '{"k":"begin","i":%d}' "$1"
  # In a subshell that has no channel, so that exit and cd are the test's own.
  (declare -F "$2" >/dev/null || exit 1; set -e; "$2") 3>&-
  case $? in
    0) report '{"k":"end","i":%d,"state":"passed"}' "$1" ;;
    77) report '{"k":"end","i":%d,"state":"skipped"}' "$1" ;;
    *) report '{"k":"end","i":%d,"state":"failed","message":"it did not return 0"}' "$1" ;;
  esac
}

while IFS= read -r request <&3; do
  case $request in # no text in a request contains these words: quotation marks are escaped there
    *'"k":"list"'*)
      while read -r name line file; do
        report '{"k":"test","id":"%s","line":%d,"file":"%s"}' "$name" "$line" "$(realpath "$file")"
      done < <(declare -F $(compgen -A function test_))
      report '{"k":"listed"}' ;;
    *'"k":"run"'*)
      [[ $request =~ \"tests\":\[([^]]*)\] ]] && IFS=, read -ra tests <<<"${BASH_REMATCH[1]//\"/}"
      for index in "${!tests[@]}"; do run_test "$index" "${tests[index]}"; done
      report '{"k":"done"}' ;;
    *'"k":"stop"'*) exit 0 ;;
  esac
done
