//! A client that lists programs and runs variants of their tests.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::Path,
    sync::Arc,
};

use heeler_config::ResolvedSettings;
use heeler_core::{Outcome, TestResult};
use heeler_protocol::{
    control::{ListedTest, RunUpdates, TestUpdate},
    mtp::{ClientMembers, LogLevel},
};
use heeler_sys::dirs::DirError;

use super::planned::{
    ListedProgram, PlannedVariants, Variant, VariantPlan, VariantSlots, listed_programs, settings_of_variants,
};
use crate::{
    discovery::{Catalogue, ListingSettings, ProgramSource},
    run::{PreparedRun, discard_run},
    scheduler::{
        BuildRequest, ClientEvent, ClientRegistration, RequestNumber, RunClient, SchedulerGone,
        SchedulerHandle, UpdateDelivery,
    },
};

/// The programs of a client, or why none can be listed.
pub type VariantListing = Result<Vec<ListedProgram>, String>;

/// An event of a client's variants.
#[derive(Debug)]
pub enum VariantEvent {
    /// A variant has its result. Each variant has exactly one.
    Ended { run: RequestNumber, name: String, result: Box<TestResult> },
    /// All variants of a run have their results, and none of its processes is left.
    RunEnded { run: RequestNumber },
    /// A message for the user.
    Warning(String),
}

/// A scheduler client that runs variants. Dropping it ends them.
#[derive(Debug)]
pub struct VariantClient {
    client: RunClient,
    settings: Arc<ResolvedSettings>,
    catalogue: Arc<Catalogue>,
    /// Tests of each program in the catalogue, shared by variants.
    tests: Vec<Vec<Arc<ListedTest>>>,
    runs: HashMap<String, OpenRun>,
    /// Events that `next_event` has not returned yet.
    events: VecDeque<VariantEvent>,
    next_request: u64,
}

#[derive(Debug)]
struct OpenRun {
    number: RequestNumber,
    /// Names of variants without a result, by uid.
    open: BTreeMap<String, String>,
}

impl VariantClient {
    /// Registers a client of these programs. Runs keep their files in `state_dir` while they are in progress.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: yes, because dropping the client makes it leave.
    pub async fn register(
        scheduler: &SchedulerHandle,
        settings: &ResolvedSettings,
        state_dir: &Path,
        sources: Vec<ProgramSource>,
    ) -> Result<Self, SchedulerGone> {
        let settings = Arc::new(settings_of_variants(settings, state_dir));
        let registration = ClientRegistration {
            delivery: UpdateDelivery::Events,
            sources,
            finder: None,
            listing: ListingSettings::of_session(&settings),
        };
        let client = scheduler.register(registration).await?;
        Ok(Self {
            client,
            settings,
            catalogue: Arc::default(),
            tests: Vec::new(),
            runs: HashMap::new(),
            events: VecDeque::new(),
            next_request: 0,
        })
    }

    /// Lists the programs.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: no, because the listing continues.
    pub async fn list(&mut self) -> Result<VariantListing, SchedulerGone> {
        let own = self.take_number();
        self.client.list(own, BuildRequest::None).await?;
        loop {
            match self.client.next_event().await.ok_or(SchedulerGone)? {
                ClientEvent::Listed { request, catalogue } if request == own => {
                    return Ok(catalogue.map(|catalogue| {
                        let programs = listed_programs(&catalogue);
                        self.catalogue = catalogue;
                        self.tests = programs.iter().map(|program| program.tests.clone()).collect();
                        programs
                    }));
                }
                other => self.take(other),
            }
        }
    }

    /// Starts a run of variants with unique names. Several runs may be in progress.
    ///
    /// # Errors
    /// No directory can be made for the journals.
    ///
    /// Cancel safe: no, because the run may have begun.
    pub async fn run(
        &mut self,
        variants: &[Variant],
        slots: VariantSlots,
    ) -> Result<RequestNumber, DirError> {
        let run_id = uuid::Uuid::new_v4().to_string();
        let (catalogue, tests) = (&self.catalogue, &self.tests);
        let plan = VariantPlan { catalogue, tests, settings: &self.settings, variants, slots };
        let PlannedVariants { prepared, names } = plan.prepare(&run_id)?;
        let PreparedRun { plan, warnings } = prepared;
        self.events.extend(warnings.into_iter().map(VariantEvent::Warning));
        let number = self.take_number();
        self.runs.insert(run_id, OpenRun { number, open: names.into_iter().collect() });
        // If the scheduler is gone, `next_event` reports it.
        let _gone = self.client.start_run(number, Box::new(plan), ClientMembers::default()).await;
        Ok(number)
    }

    /// Returns the next event; `None` if the scheduler is gone and no events are left.
    ///
    /// Cancel safe: yes, because an event is either still in a queue or returned.
    pub async fn next_event(&mut self) -> Option<VariantEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let event = self.client.next_event().await?;
            self.take(event);
        }
    }

    /// Cancels all runs. They end as usual, with remaining variants reported as cancelled.
    ///
    /// Cancel safe: no, because some may be cancelled and others not.
    pub async fn cancel(&mut self) {
        for run in self.runs.values() {
            // Without a scheduler, nothing runs.
            let _gone = self.client.kill(run.number).await;
        }
    }

    /// Stops all processes of this client. Returns when they have stopped.
    ///
    /// Cancel safe: no, because the processes may be stopped.
    pub async fn pause(&self) {
        self.client.pause_until_stopped().await;
    }

    /// Resumes stopped processes.
    ///
    /// Cancel safe: yes, because a cancelled call has sent nothing.
    pub async fn resume(&self) {
        // Without a scheduler, nothing runs.
        let _gone = self.client.resume().await;
    }

    /// Leaves the scheduler. Returns when all of this client's work has ended.
    ///
    /// Cancel safe: yes, because the client has left as soon as this is called.
    pub async fn leave(self) {
        self.client.leave().await;
    }

    fn take_number(&mut self) -> RequestNumber {
        self.next_request += 1;
        RequestNumber(self.next_request)
    }

    fn take(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Updates(updates) => self.on_updates(updates),
            ClientEvent::RunEnded { plan, .. } => {
                discard_run(&plan);
                self.end_run(&plan.run_id, "the run ended without a result for this test");
            }
            ClientEvent::RunRefused { plan, error, .. } => {
                discard_run(&plan);
                self.end_run(&plan.run_id, &error);
            }
            ClientEvent::Log { lines, .. } => {
                for line in lines.into_iter().filter(|line| line.level >= LogLevel::Error) {
                    self.events.push_back(VariantEvent::Warning(line.message));
                }
            }
            // Nothing else is listed or debugged here, updates arrive as events, and waits are not shown.
            ClientEvent::Listed { .. }
            | ClientEvent::Waits { .. }
            | ClientEvent::FinishRun(_)
            | ClientEvent::MachineWait(_)
            | ClientEvent::DebuggeeWaiting(_)
            | ClientEvent::DebuggeeLaunched(_)
            | ClientEvent::DebuggeeGone(_) => {}
        }
    }

    fn on_updates(&mut self, RunUpdates { run, updates }: RunUpdates) {
        let Some(run) = self.runs.get_mut(&run) else { return };
        for update in updates {
            match update {
                TestUpdate::Finished { uid, result } => {
                    // An update may arrive twice.
                    if let Some(name) = run.open.remove(&uid) {
                        self.events.push_back(VariantEvent::Ended { run: run.number, name, result });
                    }
                }
                TestUpdate::ProgramFailed(failure) => {
                    let text = format!("{}: {}", failure.suite, failure.message);
                    self.events.push_back(VariantEvent::Warning(text));
                }
                TestUpdate::Started { .. } | TestUpdate::Completed => {}
            }
        }
    }

    fn end_run(&mut self, run_id: &str, why: &str) {
        let Some(OpenRun { number, open }) = self.runs.remove(run_id) else { return };
        for name in open.into_values() {
            let result = Box::new(TestResult::with_reason(Outcome::Lost, why));
            self.events.push_back(VariantEvent::Ended { run: number, name, result });
        }
        self.events.push_back(VariantEvent::RunEnded { run: number });
    }
}
