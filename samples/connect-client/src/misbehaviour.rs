//! Options that make the client fail in a case.

/// Cases that the client answers wrongly, and how.
#[derive(Debug, Default)]
pub(crate) struct Misbehaviour {
    at: Vec<(Kind, String)>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Crash,
    Hang,
    Garbage,
    Exit,
}

const OPTIONS: [(&str, Kind); 4] = [
    ("--crash-at", Kind::Crash),
    ("--hang-at", Kind::Hang),
    ("--garbage-at", Kind::Garbage),
    ("--exit-at", Kind::Exit),
];

impl Misbehaviour {
    /// Parses the arguments: each option has the name of a case.
    pub(crate) fn from_arguments(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut at = Vec::new();
        while let Some(word) = words.next() {
            let kind = OPTIONS.iter().find(|(option, _)| *option == word).map(|(_, kind)| *kind);
            let kind = kind.ok_or_else(|| {
                format!("unknown argument {word:?}, expected one of {:?}", OPTIONS.map(|(option, _)| option))
            })?;
            at.push((kind, words.next().ok_or_else(|| format!("{word} needs the name of a case"))?));
        }
        Ok(Self { at })
    }

    /// Misbehaves if an option names this case.
    pub(crate) fn apply(&self, case: &str) {
        match self.at.iter().find(|(_, name)| name == case).map(|(kind, _)| *kind) {
            Some(Kind::Crash) => crash(),
            Some(Kind::Hang) => loop {
                std::thread::park();
            },
            Some(Kind::Garbage) => println!("connecting to the server"),
            Some(Kind::Exit) => std::process::exit(0),
            None => {}
        }
    }
}

fn crash() -> ! {
    eprintln!("about to abort");
    std::process::abort()
}
