//! A fake client under test of Connect's conformance suite. The last part of a case's name selects the
//! behaviour. `$HEELER_FIXTURE_CLIENT` is the command of a real client that answers all other cases.
//! `$HEELER_FIXTURE_RECORDING` is a file with recorded requests and answers to replay.

use std::{
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio, abort, exit},
    time::Duration,
};

use crate::wait::{pass_time, wait_for_ever};

/// Duration of a case in the role `waits`.
const WAIT: Duration = Duration::from_millis(30);
/// Pause of the role `reads-late` between an answer and reading the next request.
const READ_DELAY: Duration = Duration::from_millis(4500);

/// Answers all cases; returns the exit code.
pub(crate) fn serve() -> u8 {
    if let Some(recording) = std::env::var_os("HEELER_FIXTURE_RECORDING") {
        return replay(&std::fs::read(recording).expect("a recording is a file"));
    }
    let mut real = std::env::var("HEELER_FIXTURE_CLIENT").ok().map(|command| start(&command));
    while let Some(request) = read_message(&mut std::io::stdin()) {
        let name = name_of(&request);
        let behaviour = name.rsplit('/').next().unwrap_or_default();
        let at = std::env::var("HEELER_FIXTURE_CASE");
        let behaviour = match at.as_deref() {
            Ok(at) if at == name => std::env::var("HEELER_FIXTURE_BEHAVIOUR").unwrap_or_default(),
            Ok(_) => "passes".to_owned(),
            Err(_) => behaviour.to_owned(),
        };
        let is_first = || std::fs::File::create_new("aborted-once").is_ok();
        let behaviour = match behaviour.as_str() {
            "aborts-once" if is_first() => abort(),
            "aborts-once" => "passes".to_owned(),
            _ => behaviour,
        };
        let answer = match &mut real {
            Some(real) if behaviour == "passes" => ask(real, &request),
            _ => answer_to(&name, &behaviour),
        };
        write_message(&mut std::io::stdout(), &answer);
        match behaviour.as_str() {
            "answers-twice" => write_message(&mut std::io::stdout(), &answer),
            "prints-after-answer" => print_and_stay(),
            "reads-late" => pass_time(READ_DELAY),
            "exits-after-answer" => exit(7),
            _ => {}
        }
    }
    drop(real.as_mut().and_then(|real| real.stdin.take()));
    real.map_or(0, |mut real| u8::from(!real.wait().expect("it is a child").success()))
}

/// Answers each request with the recorded answer; returns the exit code.
fn replay(mut recording: &[u8]) -> u8 {
    let messages: Vec<_> = std::iter::from_fn(|| read_message(&mut recording)).collect();
    while let Some(request) = read_message(&mut std::io::stdin()) {
        let recorded = messages.chunks_exact(2).find(|pair| pair[0] == request);
        write_message(&mut std::io::stdout(), &recorded.expect("the request was recorded")[1]);
    }
    0
}

/// Connects standard input and output to the local socket `$HEELER_FIXTURE_SOCKET`, where a test acts as the
/// client; returns the exit code.
pub(crate) fn bridge() -> u8 {
    let path = std::env::var_os("HEELER_FIXTURE_SOCKET").expect("a socket is given");
    let mut socket = UnixStream::connect(path).expect("the test listens");
    let mut requests = socket.try_clone().expect("descriptors are left");
    std::thread::spawn(move || {
        while let Some(request) = read_message(&mut std::io::stdin()) {
            write_message(&mut requests, &request);
        }
        requests.shutdown(Shutdown::Write).expect("it is connected");
    });
    while let Some(answer) = read_message(&mut socket) {
        write_message(&mut std::io::stdout(), &answer);
    }
    0
}

fn answer_to(name: &str, behaviour: &str) -> Vec<u8> {
    match behaviour {
        "aborts" => {
            eprintln!("about to abort");
            abort()
        }
        "exits" => exit(0),
        "hangs" => wait_for_ever(),
        "takes-3s" => pass_time(Duration::from_secs(3)),
        "takes-200ms" => pass_time(Duration::from_millis(200)),
        "waits" => pass_time(WAIT),
        "prints" => println!("connecting to the server"),
        "prints-and-stays" => print_and_stay(),
        "announces-too-much" => {
            let mut output = std::io::stdout();
            let written = output.write_all(&[0xff; 4]).and_then(|()| output.flush());
            written.expect("standard output is open");
            wait_for_ever()
        }
        "answers-half" => {
            let mut output = std::io::stdout();
            let half = output.write_all(&[0, 0, 0, 9, 0x0a]).and_then(|()| output.flush());
            half.expect("standard output is open");
            exit(0)
        }
        "answers-other" => return response("another/case"),
        "answers-nothing" => return field_1(name),
        "says-error" => {
            let mut answer = field_1(name);
            answer.extend_from_slice(&[0x1a, 4, 0x0a, 2, b'n', b'o']);
            return answer;
        }
        _ => {}
    }
    response(name)
}

/// Writes a line that is not an answer, and never reads another request.
fn print_and_stay() -> ! {
    println!("a log line of a library");
    wait_for_ever()
}

fn response(name: &str) -> Vec<u8> {
    let mut answer = field_1(name);
    // An empty response.
    answer.extend_from_slice(&[0x12, 0]);
    answer
}

fn field_1(name: &str) -> Vec<u8> {
    let mut message = vec![0x0a];
    let mut length = name.len();
    while length >= 0x80 {
        message.push(u8::try_from(length & 0x7f).expect("seven bits") | 0x80);
        length >>= 7;
    }
    message.push(u8::try_from(length).expect("seven bits"));
    message.extend_from_slice(name.as_bytes());
    message
}

/// Returns field 1, which all writers of these messages write first.
fn name_of(message: &[u8]) -> String {
    assert_eq!(message[0], 0x0a, "a name");
    let (mut length, mut place) = (0, 1);
    loop {
        length |= usize::from(message[place] & 0x7f) << (7 * (place - 1));
        place += 1;
        if message[place - 1] < 0x80 {
            return String::from_utf8(message[place..place + length].to_vec()).expect("UTF-8");
        }
    }
}

fn read_message(input: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    input.read_exact(&mut length).ok()?;
    let mut message = vec![0; usize::try_from(u32::from_be_bytes(length)).expect("32 bits")];
    input.read_exact(&mut message).expect("a whole message");
    Some(message)
}

fn write_message(output: &mut impl Write, message: &[u8]) {
    let length = u32::try_from(message.len()).expect("messages are small").to_be_bytes();
    let written = output.write_all(&length).and_then(|()| output.write_all(message));
    written.and_then(|()| output.flush()).expect("somebody reads");
}

#[expect(clippy::disallowed_methods, reason = "the client is started as a suite starts it")]
fn start(command: &str) -> Child {
    let mut words = command.split(' ');
    let mut client = Command::new(words.next().unwrap_or_default());
    client.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
    client.spawn().expect("the client is a program")
}

fn ask(real: &mut Child, request: &[u8]) -> Vec<u8> {
    write_message(real.stdin.as_mut().expect("it is a pipe"), request);
    read_message(real.stdout.as_mut().expect("it is a pipe")).expect("an answer")
}
