//! Test programs, each built on first use and cached in the target directory under a hash of its source. A
//! lock file prevents two test processes from building a program at the same time.

use std::{
    ffi::OsString,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

use super::{cache, requirement, tests};

/// Returns a program of `tests/fixtures/gtest` by the name of its source file.
pub(crate) fn gtest(name: &str) -> PathBuf {
    let source = fixtures().join("gtest").join(format!("{name}.cc"));
    let header = fixtures().join("gtest/fixture.h");
    built(name, &[&source, &header], |target| {
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O0", "-o"]).arg(target).arg(&source);
        // The linker uses the program's own `main` instead of the library's.
        compiler.args(["-lgtest_main", "-lgtest", "-lpthread"]);
        succeed(&mut compiler, "is g++ there, and libgtest-dev? scripts/test installs them");
    })
}

/// Returns a program of `tests/fixtures/gtest`, compiled with this sanitizer.
pub(crate) fn sanitized_gtest(name: &str, sanitizer: &str) -> PathBuf {
    let source = fixtures().join("gtest").join(format!("{name}.cc"));
    built(&format!("{name}-{sanitizer}"), &[&source], |target| {
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O0", "-g", &format!("-fsanitize={sanitizer}"), "-o"]).arg(target);
        compiler.arg(&source).args(["-lgtest_main", "-lgtest", "-lpthread"]);
        succeed(&mut compiler, "is g++ there, and libgtest-dev? scripts/test installs them");
    })
}

/// Returns a program of `tests/fixtures/doctest` by the name of its source file.
pub(crate) fn doctest(name: &str) -> PathBuf {
    let source = fixtures().join("doctest").join(format!("{name}.cc"));
    built(&format!("doctest-{name}"), &[&source], |target| {
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O0", "-o"]).arg(target).arg(&source);
        succeed(&mut compiler, "is g++ there, and doctest-dev? scripts/test installs them");
    })
}

/// Returns the build directory of the CMake project `tests/fixtures/ctest`.
pub(crate) fn ctest_project() -> PathBuf {
    let source = fixtures().join("ctest");
    let files = ["CMakeLists.txt", "unit.cc", "cases.cc", "catches.cc"].map(|name| source.join(name));
    let version_3 = catch2_version_3();
    let name = if version_3.is_some() { "ctest-project-v3" } else { "ctest-project" };
    // CMake writes absolute paths into its files, so the build directory cannot be moved.
    let place = built(name, &files.each_ref().map(PathBuf::as_path), |place| {
        let folder = place.with_extension("build");
        let hint =
            "is cmake there, with g++, libgtest-dev, doctest-dev and catch2? scripts/test installs them";
        // CMake recognises an object file by its extension.
        let main = place.with_extension("main.o");
        fs::copy(catch2_version_2_main(), &main).unwrap();
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(&source).arg("-B").arg(&folder);
        configure.arg(format!("-DCATCH2_V2_MAIN={}", main.display()));
        configure.args(version_3.map(|library| format!("-DCATCH2_V3={}", library.display())));
        succeed(&mut configure, hint);
        succeed(Command::new("cmake").arg("--build").arg(&folder), hint);
        fs::write(place, folder.to_str().unwrap()).unwrap();
    });
    fs::read_to_string(place).unwrap().into()
}

/// Returns a program of `tests/fixtures/boost` by the name of its source file.
pub(crate) fn boost(name: &str) -> PathBuf {
    let source = fixtures().join("boost").join(format!("{name}.cc"));
    built(&format!("boost-{name}"), &[&source], |target| {
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O0", "-o"]).arg(target).arg(&source);
        succeed(&mut compiler, "is g++ there, and libboost-test-dev? scripts/test installs them");
    })
}

/// Returns the test program of a package in `tests/fixtures/go`, or `None` if Go is not installed.
pub(crate) fn go(package: &str) -> Option<PathBuf> {
    requirement::directory_of_program("go", "Go 1.20 or newer must be in PATH")?;
    let directory = fixtures().join("go").join(package);
    let mut sources: Vec<PathBuf> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    sources.sort();
    let sources: Vec<&Path> = sources.iter().map(PathBuf::as_path).collect();
    Some(built(&format!("go-{}", package.replace('/', "-")), &sources, |target| {
        let mut go = Command::new("go");
        go.args(["test", "-c", "-o"]).arg(target).arg(".").current_dir(&directory);
        go.env("GOFLAGS", "").env("GOTOOLCHAIN", "local").env("GOCACHE", cache().join("go"));
        succeed(&mut go, "is this Go 1.20 or newer?");
    }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Catch2Version {
    /// The version in Debian's package.
    Two,
    /// The version that `scripts/test` unpacks and compiles.
    Three,
}

/// Returns a program of `tests/fixtures/catch2` by the name of its source file, or `None` if this version of
/// Catch2 is not installed.
pub(crate) fn catch2(name: &str, version: Catch2Version) -> Option<PathBuf> {
    let source = fixtures().join("catch2").join(format!("{name}.cc"));
    let hint = "is g++ there, and catch2? scripts/test installs them";
    let compile = |target: &Path, words: &[&std::ffi::OsStr]| {
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O0", "-o"]).arg(target).args(words);
        succeed(&mut compiler, hint);
    };
    if version == Catch2Version::Two {
        let main = catch2_version_2_main();
        let words = [source.as_os_str(), "-x".as_ref(), "none".as_ref(), main.as_os_str()];
        return Some(built(&format!("catch2-v2-{name}"), &[&source], |target| compile(target, &words)));
    }
    let library = catch2_version_3()?;
    let object = library.join("catch_amalgamated.o");
    let include = [b"-I", library.as_os_str().as_encoded_bytes()].concat();
    let include = String::from_utf8(include).unwrap();
    let words = ["-DV3".as_ref(), include.as_ref(), source.as_os_str(), object.as_os_str()];
    Some(built(&format!("catch2-v3-{name}"), &[&source], |target| compile(target, &words)))
}

/// Returns the program of `tests/fixtures/own_main` for a version of Catch2, or `None` if that version is not
/// installed.
pub(crate) fn catch2_with_own_main(version: Catch2Version) -> Option<PathBuf> {
    let source = fixtures().join("own_main/catch2.cc");
    let (name, words) = match (version, catch2_version_3()) {
        (Catch2Version::Two, _) => ("own-main-catch2-v2", vec![source.as_os_str().to_owned()]),
        (Catch2Version::Three, None) => return None,
        (Catch2Version::Three, Some(library)) => {
            let mut include = OsString::from("-I");
            include.push(&library);
            let object = library.join("catch_amalgamated.o").into_os_string();
            // The library has a `main`, too. With `muldefs`, the linker uses the first one.
            let words = ["-DV3".into(), include, source.clone().into(), object, "-Wl,-z,muldefs".into()];
            ("own-main-catch2-v3", words.to_vec())
        }
    };
    Some(built(name, &[&source], |target| {
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O0", "-o"]).arg(target).args(&words);
        succeed(&mut compiler, "is g++ there, and catch2? scripts/test installs them");
    }))
}

/// Returns the doctest program of `tests/fixtures/own_main`.
pub(crate) fn doctest_with_own_main() -> PathBuf {
    let source = fixtures().join("own_main/doctest.cc");
    built("own-main-doctest", &[&source], |target| {
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O0", "-o"]).arg(target).arg(&source);
        succeed(&mut compiler, "is g++ there, and doctest-dev? scripts/test installs them");
    })
}

/// Returns each framework's program from `tests/fixtures/listing`, with its name. Omits the Catch2 3 program
/// if that version is not installed.
pub(crate) fn dying_listings() -> Vec<(&'static str, PathBuf)> {
    let source = fixtures().join("listing/dies.cc");
    let build = |name: &'static str, words: Vec<OsString>| {
        let program = built(&format!("listing-{name}"), &[&source], |target| {
            let mut compiler = Command::new("g++");
            compiler.args(["-std=c++17", "-O0", "-g", "-o"]).arg(target).args(&words).arg("-xnone");
            succeed(&mut compiler, "is g++ there, with doctest-dev, libboost-test-dev and catch2?");
        });
        (name, program)
    };
    let source = || source.as_os_str().to_owned();
    let mut all = vec![
        build("doctest", vec!["-DDOCTEST".into(), source()]),
        build("boost", vec!["-DBOOST".into(), source()]),
        build("catch2-v2", vec![source(), "-xnone".into(), catch2_version_2_main().into()]),
    ];
    if let Some(library) = catch2_version_3() {
        let mut include = OsString::from("-I");
        include.push(&library);
        let object = library.join("catch_amalgamated.o").into();
        all.push(build("catch2", vec!["-DV3".into(), include, source(), object]));
    }
    all
}

/// Returns the programs of `tests/fixtures/forks`, with names: one for each framework that reports on
/// standard output. Omits the Catch2 3 program if that version is not installed.
pub(crate) fn forking_programs() -> Vec<(&'static str, PathBuf)> {
    let source = fixtures().join("forks/forks.cc");
    let build = |name: &'static str, before: Vec<OsString>, after: Vec<OsString>| {
        let program = built(&format!("forks-{name}"), &[&source], |target| {
            let mut compiler = Command::new("g++");
            compiler.args(["-std=c++17", "-O0", "-g", "-o"]).arg(target).args(&before).arg(&source);
            compiler.args(&after);
            succeed(
                &mut compiler,
                "is g++ there, with libgtest-dev, doctest-dev, libboost-test-dev and catch2?",
            );
        });
        (name, program)
    };
    let gtest = ["-lgtest_main", "-lgtest", "-lpthread"].map(OsString::from).to_vec();
    let mut all = vec![
        build("gtest", vec!["-DGTEST".into()], gtest),
        build("doctest", vec!["-DDOCTEST".into()], Vec::new()),
        build("boost", vec!["-DBOOST".into()], Vec::new()),
        build("catch2-v2", Vec::new(), vec!["-xnone".into(), catch2_version_2_main().into()]),
        ("libtest", forking_libtest()),
    ];
    if let Some(library) = catch2_version_3() {
        let mut include = OsString::from("-I");
        include.push(&library);
        let object = library.join("catch_amalgamated.o").into();
        all.push(build("catch2-v3", vec!["-DV3".into(), include], vec![object]));
    }
    all
}

fn forking_libtest() -> PathBuf {
    let source = fixtures().join("forks/forks.rs");
    built("forks-libtest", &[&source], |target| {
        let mut rustc = Command::new(Path::new(env!("CARGO")).with_file_name("rustc"));
        rustc.args(["--test", "--edition", "2024", "-o"]).arg(target).arg(&source);
        succeed(&mut rustc, "the libtest fixture must compile");
    })
}

/// Returns the compiled library of Catch2 2, including its `main`.
pub(crate) fn catch2_version_2_main() -> PathBuf {
    let main = fixtures().join("catch2/main.cc");
    built("catch2-main", &[&main], |target| {
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O0", "-o"]).arg(target).arg("-c").arg(&main);
        succeed(&mut compiler, "is g++ there, and catch2? scripts/test installs them");
    })
}

/// Returns the directory of the compiled Catch2 3 library, if it is installed.
pub(crate) fn catch2_version_3() -> Option<PathBuf> {
    requirement::directory_of("HEELER_CATCH2_V3", "Catch2 3")
}

/// Returns the test program of the crate `tests/fixtures/libtest`.
pub(crate) fn libtest() -> PathBuf {
    let dir = libtest_crate();
    let (manifest, source) = (dir.join("Cargo.toml"), dir.join("src/lib.rs"));
    built("libtest", &[&manifest, &source], |target| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "--quiet", "--no-run", "--message-format=json"]).current_dir(&dir);
        cargo.env("CARGO_TARGET_DIR", cache().join("libtest-target"));
        let output = succeed(&mut cargo, "the libtest fixture must compile");
        let text = String::from_utf8(output).unwrap();
        let found = text.lines().find_map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            Some(message["executable"].as_str()?.to_owned())
        });
        fs::copy(found.expect("cargo names the test program"), target).unwrap();
    })
}

/// Returns the package directory of the libtest fixture.
pub(crate) fn libtest_crate() -> PathBuf {
    fixtures().join("libtest")
}

/// Returns the hand-written server script of `tests/fixtures/mcp`.
pub(crate) fn mcp_server() -> PathBuf {
    mcp("server.py")
}

pub(crate) fn mcp(name: &str) -> PathBuf {
    fixtures().join("mcp").join(name)
}

/// Returns the directory that contains the fixtures' sources.
pub(crate) fn fixtures() -> PathBuf {
    tests().join("fixtures")
}

/// Returns a program built from these sources. Builds it only if a source has changed.
pub(crate) fn built(name: &str, sources: &[&Path], build: impl FnOnce(&Path)) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    for source in sources {
        fs::read(source).unwrap_or_else(|error| panic!("{}: {error}", source.display())).hash(&mut hasher);
    }
    let target = cache().join(format!("{name}-{:016x}", hasher.finish()));
    if target.exists() {
        return target;
    }
    fs::create_dir_all(cache()).unwrap();
    let lock = File::create(cache().join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    if !target.exists() {
        let part = target.with_extension("part");
        build(&part);
        fs::rename(&part, &target).unwrap();
    }
    target
}

/// Runs a command that must succeed; returns its standard output.
pub(crate) fn succeed(command: &mut Command, hint: &str) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; {hint}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed; {hint}\n{errors}");
    output.stdout
}
