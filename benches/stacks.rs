//! Speedup from the thread pool when reporting a hang. A program has 64 threads in 64 functions of eight
//! libraries with debug information; measures the time from its stopped threads to the text of their stacks,
//! for one program and for four at once, compared with a single thread.
//!
//! `cargo bench -p heeler-crash --bench stacks`. Builds its program with `g++` below the target directory.

#![expect(clippy::unwrap_used, reason = "a bench that fails may panic")]
#![expect(clippy::disallowed_methods, reason = "each configuration is measured in a process of its own")]

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use heeler_crash::{
    dump::{self, DumpPlan, DumpTarget},
    stacks::{self, ThreadRegisters},
};
use heeler_sys::process::Pid;

const LIBRARIES: usize = 8;
const FUNCTIONS: usize = 8;
/// Types of each function, about two megabytes of debug information in each library.
const TYPES: usize = 3;
const PROGRAMS: usize = 4;
const ROUNDS: usize = 15;

/// Environment variable with the ids of the hung processes. If it is set, this program measures one
/// configuration.
const MEASURED_PIDS: &str = "HEELER_BENCH_STACKS_PIDS";

fn main() {
    if let Ok(pids) = std::env::var(MEASURED_PIDS) {
        return measure(&pids.split(' ').map(|pid| Pid(pid.parse().unwrap())).collect::<Vec<_>>());
    }
    let program = build();
    let hung: Vec<HungProgram> = (0..PROGRAMS).map(|_| HungProgram::start(&program)).collect();
    println!(
        "{} threads in {LIBRARIES} libraries of {}, median of {ROUNDS}:",
        LIBRARIES * FUNCTIONS,
        debug_size(&program)
    );
    let cores = std::thread::available_parallelism().unwrap().get();
    for count in [1, PROGRAMS] {
        let pids: Vec<String> = hung[..count].iter().map(|one| one.0.id().to_string()).collect();
        for threads in [1, cores] {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.env(MEASURED_PIDS, pids.join(" "));
            // Set explicitly, so that the pool is used on a busy machine too.
            command.env("RAYON_NUM_THREADS", threads.to_string());
            print!("{count} programs, {threads} threads: ");
            std::io::stdout().flush().unwrap();
            assert!(command.status().unwrap().success());
        }
    }
}

/// Prints the times for unwinding and symbolizing the threads of these processes.
fn measure(pids: &[Pid]) {
    let dir = tempfile::tempdir().unwrap();
    let registers: Vec<_> = pids.iter().map(|pid| registers(*pid, dir.path())).collect();
    let mut times: [Vec<Duration>; 2] = Default::default();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let raws: Vec<_> = pids
            .iter()
            .zip(&registers)
            .map(|(pid, threads)| stacks::unwind(*pid, threads).unwrap())
            .collect();
        let unwound = start.elapsed();
        let named = stacks::symbolize_all(raws);
        let text: Vec<String> = named.iter().map(stacks::ProcessStacks::to_text).collect();
        let symbolized = start.elapsed();
        for (library, function) in
            (0..LIBRARIES).flat_map(|one| (0..FUNCTIONS).map(move |other| (one, other)))
        {
            let name = format!("wait_{library}_{function}");
            assert!(text.iter().all(|text| text.contains(&name)), "{name} is missing in {}", text[0]);
        }
        for (times, time) in times.iter_mut().zip([unwound, symbolized - unwound]) {
            times.push(time);
        }
    }
    let [unwound, symbolized] = times.map(|mut times| {
        times.sort();
        times[ROUNDS / 2].as_secs_f64() * 1e3
    });
    println!("unwound {unwound:.1} ms, symbolized {symbolized:.1} ms");
}

/// Returns the registers of all threads from a dump. Blocked threads keep their registers.
fn registers(pid: Pid, dir: &Path) -> Vec<ThreadRegisters> {
    let path = dir.join(format!("{pid}.dmp"));
    let plan = DumpPlan {
        path,
        limit_bytes: 256 << 20,
        keeps_environment: false,
        stop_timeout: Duration::from_secs(5),
    };
    dump::write(&DumpTarget { pid, blamed: pid, crash: None }, &plan).unwrap();
    let threads = dump::read(&plan.path).unwrap().threads;
    threads
        .into_iter()
        .map(|thread| ThreadRegisters { tid: thread.tid, registers: thread.registers, name: thread.name })
        .collect()
}

/// A program whose threads wait; killed on drop.
struct HungProgram(Child);

impl HungProgram {
    fn start(program: &Path) -> Self {
        let mut child = Command::new(program).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }
}

impl Drop for HungProgram {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Builds the program and its libraries if they do not exist.
fn build() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stacks");
    let program = dir.join("hang");
    if program.exists() {
        return program;
    }
    fs::create_dir_all(&dir).unwrap();
    let mut main = "#include <pthread.h>\n#include <unistd.h>\npthread_barrier_t barrier;\n".to_owned();
    let mut starts = String::new();
    let mut arguments: Vec<String> =
        ["-pthread", "-g", "-Wl,-rpath,$ORIGIN", "-rdynamic"].map(str::to_owned).into();
    arguments.extend(["-o".to_owned(), path_text(&program), path_text(&dir.join("main.cc"))]);
    for library in 0..LIBRARIES {
        let source = dir.join(format!("part{library}.cc"));
        fs::write(&source, library_source(library)).unwrap();
        let object = path_text(&dir.join(format!("libpart{library}.so")));
        gxx(&["-pthread", "-g", "-O1", "-shared", "-fPIC", "-o", &object, &path_text(&source)]);
        arguments.push(object);
        for function in 0..FUNCTIONS {
            writeln!(main, "extern \"C\" void* wait_{library}_{function}(void*);").unwrap();
            writeln!(starts, "  pthread_create(&id, nullptr, wait_{library}_{function}, nullptr);").unwrap();
        }
    }
    let count = LIBRARIES * FUNCTIONS + 1;
    writeln!(
        main,
        "int main() {{\n  pthread_barrier_init(&barrier, nullptr, {count});\n  pthread_t id;\n{starts}"
    )
    .unwrap();
    main.push_str("  pthread_barrier_wait(&barrier);\n  if (write(1, \"ready\\n\", 6) != 6) return 1;\n");
    main.push_str("  for (;;) pause();\n}\n");
    fs::write(dir.join("main.cc"), main).unwrap();
    gxx(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    program
}

fn library_source(library: usize) -> String {
    let mut text = "#include <functional>\n#include <map>\n#include <memory>\n#include <pthread.h>\n#include <string>\n\
        #include <unistd.h>\n#include <vector>\nextern pthread_barrier_t barrier;\n\
        template <int N> struct Part { int value = N; std::string name; std::vector<int> numbers; };\n\
        template <int N> int use(int seed) {\n\
          std::map<std::string, std::vector<Part<N>>> parts;\n\
          parts[\"a\"].push_back(Part<N>{seed, \"b\", {1, 2}});\n\
          std::map<int, std::shared_ptr<Part<N>>> shared;\n\
          shared[seed] = std::make_shared<Part<N>>();\n\
          std::function<int(const Part<N>&)> count = [&](const Part<N>& part) { return part.value + int(shared.size()); };\n\
          return count(parts[\"a\"].front());\n}\n"
        .to_owned();
    for function in 0..FUNCTIONS {
        let first = (library * FUNCTIONS + function) * TYPES;
        let uses: Vec<String> = (first..first + TYPES).map(|number| format!("use<{number}>(1)")).collect();
        writeln!(text, "extern \"C\" void* wait_{library}_{function}(void*) {{").unwrap();
        writeln!(text, "  volatile int used = {};\n  pthread_barrier_wait(&barrier);", uses.join(" + "))
            .unwrap();
        writeln!(text, "  for (;;) pause();\n  return (void*)(long)used;\n}}").unwrap();
    }
    text
}

fn gxx(arguments: &[&str]) {
    assert!(Command::new("g++").args(arguments).status().unwrap().success(), "g++ {arguments:?}");
}

fn path_text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Returns the size of a library, which is mostly debug information.
fn debug_size(program: &Path) -> String {
    let bytes = fs::metadata(program.with_file_name("libpart0.so")).unwrap().len();
    format!("{:.1} MB", bytes as f64 / 1e6)
}
