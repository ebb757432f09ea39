//! Another client of a listening server, with a separate session.

use std::net::{Shutdown, TcpStream};

use serde_json::{Value, json};

use super::{
    callback_listener::{ListenerBehaviour, RecordingListener},
    checked_run::{CheckedRun, ExpectedDelivery, RequestedRun},
    framing,
    recorder::{RecordedEvent, TrafficRecorder},
    server::{TestServer, record, run_id},
};

pub(crate) struct SecondClient {
    stream: TcpStream,
    recorder: TrafficRecorder,
    _listener: Option<RecordingListener>,
    next_id: u64,
}

impl SecondClient {
    /// Connects and initializes, with or without a callback port.
    pub(crate) fn connect(server: &TestServer<'_>, is_listening: bool) -> Self {
        let stream = server.connect();
        let recorder = TrafficRecorder::default();
        record(Box::new(stream.try_clone().unwrap()), recorder.clone());
        let listener =
            is_listening.then(|| RecordingListener::new(recorder.clone(), |_| ListenerBehaviour::Normal));
        let provider = listener.as_ref().map(|listener| json!({"port": listener.port}));
        let mut client = Self { stream, recorder, _listener: listener, next_id: 1 };
        let mut testing = json!({"debuggerProvider": false, "attachmentsSupport": is_listening});
        if let Some(provider) = provider {
            testing["callbackProvider"] = provider;
        }
        let params = json!({
            "processId": std::process::id(),
            "clientInfo": {"name": "second", "version": "1"},
            "capabilities": {"testing": testing},
        });
        let id = client.request("initialize", params);
        assert!(client.wait_response(id)["result"].is_object());
        client
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        framing::write_message(&mut self.stream, &framing::request(id, method, params)).unwrap();
        id
    }

    pub(crate) fn wait_response(&self, id: u64) -> Value {
        self.recorder.wait(&format!("the answer to {id} of the second client"), |events| {
            let is_answer = |message: &&Value| message.get("method").is_none() && message["id"] == id;
            events.iter().filter_map(|event| event.message()).find(is_answer).cloned()
        })
    }

    /// Returns all events so far.
    pub(crate) fn events(&self) -> Vec<RecordedEvent> {
        self.recorder.events()
    }

    /// Requests a run of these tests. All clients use the same run id for their first run.
    pub(crate) fn run(&mut self, uids: &[String]) -> RequestedRun {
        let run_id = run_id(self.next_id);
        let tests: Vec<_> = uids.iter().map(|uid| json!({"uid": uid})).collect();
        let request = self.request("testing/runTests", json!({"runId": run_id, "tests": tests}));
        RequestedRun { run_id, request }
    }

    /// Waits until all earlier requests have begun: requests are handled in order, and the server answers a
    /// discovery at once.
    pub(crate) fn wait_begun(&mut self, number: u64) {
        let id = self.request("testing/discoverTests", json!({"runId": run_id(number)}));
        assert!(self.wait_response(id).get("error").is_none());
    }

    /// Waits for the end of a run and checks its messages.
    pub(crate) fn finish(&self, run: &RequestedRun, selected: &[String]) -> CheckedRun {
        self.wait_response(run.request);
        CheckedRun::check(&self.recorder.events(), run, selected, ExpectedDelivery::Once)
    }

    /// Closes the connection without `exit`, as if the client had died.
    pub(crate) fn disconnect(self) {
        self.stream.shutdown(Shutdown::Both).unwrap();
    }
}
