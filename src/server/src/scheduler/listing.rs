//! Catalogues of tests. Clients of the same program list share a catalogue. A listing runs when a client
//! requests it and a program has changed or is not listed. A program in several catalogues is listed once for
//! all of them.

use std::sync::Arc;

use heeler_protocol::{
    control::{ClientId, FromWorker, WorkerId},
    mtp::LogLevel,
};

use super::{
    ClientEvent, ClientLogLine, RequestNumber,
    builds::{BuiltRequest, FinishedBuild, PendingBuild, RunningBuilds},
    clients::Clients,
};
use crate::{
    discovery::{
        Catalogue, FinishedListing, ListingSettings, ListingState, ProgramFinder, ProgramLister,
        ProgramSource,
    },
    pool::WorkerPool,
};

/// Test catalogue of a set of programs, shared by all clients that registered the same set.
struct SharedCatalogue {
    /// The programs that clients registered, used to find the catalogue for further clients. After a build,
    /// the catalogue may contain different programs.
    sources: Vec<ProgramSource>,
    /// Shared with clients that read it, and copied on change.
    catalogue: Arc<Catalogue>,
    listing: ListingSettings,
    lister: Option<ProgramLister>,
    finder: Option<Arc<dyn ProgramFinder>>,
    /// A build in progress, or a build that ended while the catalogue was being listed.
    build: Option<PendingBuild>,
    /// Programs that another catalogue's lister is listing.
    awaited: Vec<usize>,
    /// Requests that wait for the listing.
    waiting: Vec<(ClientId, RequestNumber)>,
}

impl SharedCatalogue {
    /// Replaces the programs after a build. Listings of unchanged programs are kept.
    fn replace_sources(&mut self, sources: Vec<ProgramSource>) {
        self.catalogue = Arc::new(self.catalogue.with_sources(sources));
    }
}

/// Which listings to adopt from other catalogues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AdoptedListings {
    /// Successful listings only. A program that could not be listed is tried again on each request.
    Succeeded,
    /// Failed listings too, for programs whose listing this catalogue has waited for.
    Any,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnlistedPrograms {
    /// Programs that no lister is listing.
    to_list: Vec<usize>,
    /// Programs that another catalogue's lister is listing.
    awaited: Vec<usize>,
}

/// The next step for a listing request.
pub(super) enum ListingNeed {
    /// All programs are listed.
    Nothing(Arc<Catalogue>),
    /// A listing that is in progress.
    InProgress,
    /// A new listing of these programs.
    Workers(UnlistedPrograms),
}

#[derive(Default)]
pub(super) struct Catalogues {
    all: Vec<SharedCatalogue>,
    builds: RunningBuilds,
}

impl Catalogues {
    /// Returns the index of the catalogue for these programs.
    pub(super) fn find_or_add(
        &mut self,
        sources: Vec<ProgramSource>,
        listing: ListingSettings,
        finder: Option<Arc<dyn ProgramFinder>>,
    ) -> usize {
        if let Some(place) = self.all.iter().position(|one| one.sources == sources) {
            return place;
        }
        self.all.push(SharedCatalogue {
            catalogue: Arc::new(Catalogue::new(sources.clone())),
            sources,
            listing,
            lister: None,
            finder,
            build: None,
            awaited: Vec::new(),
            waiting: Vec::new(),
        });
        self.all.len() - 1
    }

    /// Adopts listings from other catalogues. Returns the programs that are still unlisted.
    fn share_listings(
        &mut self,
        place: usize,
        programs: Vec<usize>,
        adopted: AdoptedListings,
    ) -> UnlistedPrograms {
        let mut unlisted = UnlistedPrograms { to_list: Vec::new(), awaited: Vec::new() };
        for program in programs {
            // Find the same program in other catalogues.
            let (one, entry) = (&self.all[place], &self.all[place].catalogue.programs()[program]);
            let others = self.all.iter().enumerate().filter(|(other, _)| *other != place);
            let mut same = others.flat_map(|(_, other)| {
                let programs = other.catalogue.programs().iter().enumerate();
                programs.filter(|(_, other)| other.is_same_program(entry)).map(move |found| (other, found))
            });
            let is_adopted = |other: &crate::discovery::ProgramEntry| {
                let is_wanted = match other.listing {
                    ListingState::Listed { .. } => true,
                    ListingState::Broken { .. } => adopted == AdoptedListings::Any,
                    ListingState::Unknown => false,
                };
                is_wanted && other.is_current()
            };
            let is_listed_elsewhere = |other: &SharedCatalogue, index: usize| {
                other.lister.as_ref().is_some_and(|lister| lister.is_listing(index))
            };
            // A listing in progress is newer than any known listing.
            if same.clone().any(|(other, (index, _))| is_listed_elsewhere(other, index)) {
                unlisted.awaited.push(program);
            } else if let Some((_, (_, known))) = same.find(|(_, (_, known))| is_adopted(known)) {
                let (known, mut catalogue) = (known.clone(), Arc::clone(&one.catalogue));
                Arc::make_mut(&mut catalogue).adopt_listing(program, &known);
                self.all[place].catalogue = catalogue;
            } else {
                unlisted.to_list.push(program);
            }
        }
        unlisted
    }

    /// Adopts awaited listings. If another catalogue's lister gave up on a program, it is listed here.
    fn collect_awaited(&mut self) {
        for place in 0..self.all.len() {
            let awaited = std::mem::take(&mut self.all[place].awaited);
            if awaited.is_empty() {
                continue;
            }
            let unlisted = self.share_listings(place, awaited, AdoptedListings::Any);
            let one = &mut self.all[place];
            one.awaited = unlisted.awaited;
            if let Some(lister) = &mut one.lister {
                unlisted.to_list.into_iter().for_each(|program| lister.add(program));
            }
        }
    }

    /// Returns the listings in progress with the indices of their catalogues.
    pub(super) fn listers(&self) -> impl Iterator<Item = (usize, &ProgramLister)> {
        self.all.iter().enumerate().filter_map(|(place, one)| Some((place, one.lister.as_ref()?)))
    }

    /// Passes a worker's message to its listing. Returns the finished job if the worker is idle again.
    pub(super) fn on_worker_message(
        &mut self,
        worker: WorkerId,
        message: FromWorker,
    ) -> Option<FinishedListing> {
        for one in &mut self.all {
            if let Some(lister) = one.lister.as_mut().filter(|lister| lister.is_used_by(worker)) {
                return lister.on_worker_message(Arc::make_mut(&mut one.catalogue), worker, message);
            }
        }
        None
    }

    pub(super) fn on_worker_died(&mut self, worker: WorkerId) {
        for one in &mut self.all {
            if let Some(lister) = one.lister.as_mut().filter(|lister| lister.is_used_by(worker)) {
                lister.on_worker_died(Arc::make_mut(&mut one.catalogue), worker);
            }
        }
    }

    /// Ends all listings, because no workers are left.
    pub(super) fn fail_all(&mut self, why: &str) {
        for one in &mut self.all {
            if let Some(lister) = &mut one.lister {
                lister.fail_remaining(Arc::make_mut(&mut one.catalogue), why);
            }
        }
    }

    /// Counts a failed worker start. After too many, the listing is given up unless a worker is ready.
    /// Workers that are still starting do not count, because they may fail in the same way.
    pub(super) fn on_start_failed(&mut self, place: usize, slots: usize, is_worker_ready: bool, error: &str) {
        let one = &mut self.all[place];
        let Some(lister) = &mut one.lister else { return };
        if lister.count_failed_start(slots) && !is_worker_ready {
            lister.fail_remaining(Arc::make_mut(&mut one.catalogue), error);
        }
    }

    /// Returns what a request has to wait for until the catalogue is listed.
    pub(super) fn listing_need(&mut self, place: usize) -> ListingNeed {
        let one = &self.all[place];
        if one.lister.is_some() {
            return ListingNeed::InProgress;
        }
        let programs = one.catalogue.unlisted();
        let has_changed = !programs.is_empty();
        let unlisted = self.share_listings(place, programs, AdoptedListings::Succeeded);
        if !unlisted.to_list.is_empty() || !unlisted.awaited.is_empty() {
            return ListingNeed::Workers(unlisted);
        }
        let one = &mut self.all[place];
        if has_changed {
            Arc::make_mut(&mut one.catalogue).rebuild_index();
        }
        ListingNeed::Nothing(Arc::clone(&one.catalogue))
    }

    pub(super) fn begin_listing(&mut self, place: usize, unlisted: UnlistedPrograms) {
        let one = &mut self.all[place];
        one.lister = Some(ProgramLister::new(unlisted.to_list, one.listing.clone()));
        one.awaited = unlisted.awaited;
    }

    /// Makes a request wait for the listing in progress.
    pub(super) fn await_listing(&mut self, place: usize, client: ClientId, request: RequestNumber) {
        self.all[place].waiting.push((client, request));
    }

    /// Assigns the listing's next program to a worker.
    ///
    /// Cancel safe: no, as [`ProgramLister::assign`].
    pub(super) async fn assign(
        &mut self,
        pool: &mut WorkerPool,
        place: usize,
        worker: WorkerId,
        upcoming_run: Option<&str>,
    ) {
        let one = &mut self.all[place];
        if let Some(lister) = &mut one.lister {
            lister.assign(pool, &one.catalogue, worker, upcoming_run).await;
        }
    }

    /// Responds to requests whose listing is done.
    pub(super) fn finish_listings(&mut self, clients: &Clients) {
        self.collect_awaited();
        for one in &mut self.all {
            if one.lister.as_ref().is_none_or(|lister| !lister.is_done()) || !one.awaited.is_empty() {
                continue;
            }
            one.lister = None;
            Arc::make_mut(&mut one.catalogue).rebuild_index();
            let waiting = std::mem::take(&mut one.waiting);
            let mut logged = Vec::new();
            for (client, request) in waiting {
                let Some(entry) = clients.get(client) else { continue };
                if !logged.contains(&client) {
                    logged.push(client);
                    entry.events.log(None, broken_programs(&one.catalogue));
                }
                let catalogue = Ok(Arc::clone(&one.catalogue));
                entry.events.send(ClientEvent::Listed { request, catalogue });
            }
        }
    }

    /// Removes waiting requests. Listings that no request waits for are aborted.
    ///
    /// Cancel safe: no, as [`ProgramLister::abort`].
    pub(super) async fn cancel(
        &mut self,
        mut pool: Option<&mut WorkerPool>,
        is_cancelled: impl Fn(&(ClientId, RequestNumber)) -> bool,
    ) {
        for one in &mut self.all {
            one.waiting.retain(|waiting| !is_cancelled(waiting));
            one.build.take_if(|build| build.remove_waiting(&is_cancelled));
        }
        for one in self.all.iter_mut().filter(|one| one.waiting.is_empty()) {
            one.awaited.clear();
            if let (Some(lister), Some(pool)) = (one.lister.take(), pool.as_deref_mut()) {
                lister.abort(pool).await;
                // Some programs may have been listed again.
                Arc::make_mut(&mut one.catalogue).rebuild_index();
            }
        }
    }

    /// Builds the programs of a catalogue for a request. Returns `None` if they can't be built.
    pub(super) fn build(
        &mut self,
        place: usize,
        client: ClientId,
        request: RequestNumber,
    ) -> Option<Result<(), String>> {
        let one = &mut self.all[place];
        let finder = one.finder.clone()?;
        if one.build.as_ref().is_none_or(PendingBuild::is_done) {
            // A build that has ended but is not listed yet misses later source changes.
            match self.builds.start(finder, one.build.as_ref()) {
                Ok(build) => one.build = Some(build),
                Err(error) => return Some(Err(error)),
            }
        }
        one.build.iter_mut().for_each(|build| build.add_waiting(client, request));
        Some(Ok(()))
    }

    /// Waits for the next build to end.
    ///
    /// Cancel safe: yes, as [`RunningBuilds::next_finished`].
    pub(super) async fn next_build(&mut self) -> FinishedBuild {
        self.builds.next_finished().await
    }

    /// Stores the result of a build. The result of a cancelled build is dropped.
    pub(super) fn on_build_finished(&mut self, finished: FinishedBuild) {
        let mut builds = self.all.iter_mut().filter_map(|one| one.build.as_mut());
        if let Some(build) = builds.find(|build| build.is_of(&finished)) {
            build.finish(finished);
        }
    }

    /// Adopts built programs and returns the requests that wait for them. While a catalogue is being listed,
    /// its programs are not replaced.
    pub(super) fn take_built(&mut self) -> Vec<BuiltRequest> {
        let mut built = Vec::new();
        for one in self.all.iter_mut().filter(|one| one.lister.is_none()) {
            if let Some(build) = one.build.take_if(|build| build.is_done()) {
                built.extend(build.into_requests(|sources| one.replace_sources(sources)));
            }
        }
        built
    }

    /// Waits for cancelled builds to end.
    ///
    /// Cancel safe: yes, as [`RunningBuilds::finish`].
    pub(super) async fn finish_builds(&mut self) {
        self.builds.finish().await;
    }
}

/// Returns log lines about programs that could not be listed or have warnings.
fn broken_programs(catalogue: &Catalogue) -> Vec<ClientLogLine> {
    let mut lines = Vec::new();
    for entry in catalogue.programs() {
        match &entry.listing {
            ListingState::Broken { error } => lines.push(ClientLogLine::new(LogLevel::Error, error.clone())),
            ListingState::Listed { failure, warnings, .. } => {
                let failure = failure.iter();
                lines.extend(failure.map(|text| ClientLogLine::new(LogLevel::Error, text.to_string())));
                let suite = &entry.source.program.suite;
                let warnings = warnings.iter();
                lines.extend(
                    warnings.map(|text| ClientLogLine::new(LogLevel::Warning, format!("{suite} {text}"))),
                );
            }
            ListingState::Unknown => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use heeler_protocol::control::{ListedTest, NameNesting, TestProgram};

    use super::*;
    use crate::discovery::ProgramListing;

    fn source(suite: &str, path: &Path) -> ProgramSource {
        let program = TestProgram { suite: suite.to_owned(), path: path.into(), ..TestProgram::default() };
        ProgramSource { program, config_suite: None }
    }

    fn listing(test: &str) -> ProgramListing {
        ProgramListing {
            framework: "gtest".to_owned(),
            nesting: NameNesting::FullStop,
            selection_limit: None,
            tests: vec![ListedTest { name: test.to_owned(), ..ListedTest::default() }],
            start: Duration::ZERO,
            failure: None,
            warnings: Vec::new(),
            depends_on: Vec::new(),
            process: heeler_core::batching::ProcessTraits::default(),
        }
    }

    fn to_list(programs: &[usize]) -> UnlistedPrograms {
        UnlistedPrograms { to_list: programs.to_vec(), awaited: Vec::new() }
    }

    /// Two clients: one with programs a and b, one with c and with b under another suite name.
    fn overlapping(dir: &Path) -> Catalogues {
        let path = |name: &str| {
            std::fs::write(dir.join(name), name).unwrap();
            dir.join(name)
        };
        let (a, b, c) = (path("a"), path("b"), path("c"));
        let mut catalogues = Catalogues::default();
        assert_eq!(
            catalogues.find_or_add(vec![source("a", &a), source("b", &b)], ListingSettings::default(), None),
            0
        );
        assert_eq!(
            catalogues.find_or_add(
                vec![source("mine", &b), source("c", &c)],
                ListingSettings::default(),
                None
            ),
            1
        );
        catalogues
    }

    fn record(
        catalogues: &mut Catalogues,
        place: usize,
        program: usize,
        answer: Result<ProgramListing, String>,
    ) {
        let one = &mut catalogues.all[place];
        Arc::make_mut(&mut one.catalogue).record_listing(program, answer);
        one.lister = None;
    }

    #[test]
    fn listed_program_is_taken_over_until_its_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalogues = overlapping(dir.path());
        assert_eq!(catalogues.share_listings(1, vec![0, 1], AdoptedListings::Succeeded), to_list(&[0, 1]));
        record(&mut catalogues, 0, 1, Ok(listing("t")));
        assert_eq!(catalogues.share_listings(1, vec![0, 1], AdoptedListings::Succeeded), to_list(&[1]));
        let uids: Vec<_> = {
            let catalogue = &catalogues.all[1].catalogue;
            catalogue.all().map(|test| catalogue.test(test).unwrap().uid().to_owned()).collect()
        };
        assert_eq!(uids, ["mine::t"]);
        std::fs::write(dir.path().join("b"), "changed").unwrap();
        assert_eq!(catalogues.all[1].catalogue.unlisted(), [0, 1]);
        assert_eq!(catalogues.share_listings(1, vec![0], AdoptedListings::Succeeded), to_list(&[0]));
    }

    #[test]
    fn listing_in_progress_is_awaited_and_its_failure_taken_over_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalogues = overlapping(dir.path());
        catalogues.all[0].lister = Some(ProgramLister::new(vec![0, 1], ListingSettings::default()));
        let unlisted = catalogues.share_listings(1, vec![0, 1], AdoptedListings::Succeeded);
        assert_eq!(unlisted, UnlistedPrograms { to_list: vec![1], awaited: vec![0] });
        catalogues.all[1].lister = Some(ProgramLister::new(unlisted.to_list, ListingSettings::default()));
        catalogues.all[1].awaited = unlisted.awaited;
        catalogues.collect_awaited();
        assert_eq!(catalogues.all[1].awaited, [0]);
        record(&mut catalogues, 0, 1, Err("broken".to_owned()));
        catalogues.collect_awaited();
        assert!(catalogues.all[1].awaited.is_empty());
        let broken = &catalogues.all[1].catalogue.programs()[0];
        assert_eq!(broken.listing, ListingState::Broken { error: "broken".to_owned() });
        // The next request tries again.
        assert_eq!(catalogues.share_listings(1, vec![0], AdoptedListings::Succeeded), to_list(&[0]));
    }

    #[test]
    fn program_of_an_aborted_listing_is_listed_by_those_who_await_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalogues = overlapping(dir.path());
        catalogues.all[1].lister = Some(ProgramLister::new(Vec::new(), ListingSettings::default()));
        catalogues.all[1].awaited = vec![0];
        catalogues.collect_awaited();
        let one = &catalogues.all[1];
        assert!(one.awaited.is_empty() && one.lister.as_ref().unwrap().is_listing(0));
    }
}
