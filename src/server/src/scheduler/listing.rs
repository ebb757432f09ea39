//! Catalogues of tests. Clients of the same programs share one; a listing runs when one of them requests it and
//! a program is not listed, or has changed.

use std::{sync::Arc, time::Duration};

use heeler_protocol::{
    control::{ClientId, FromWorker, WorkerId},
    mtp::LogLevel,
};

use super::{ClientEvent, ClientLogLine, RequestNumber, event_loop::Scheduler};
use crate::discovery::{Catalogue, ListingState, ProgramLister, ProgramSource};

/// The catalogue of one list of programs.
struct SharedCatalogue {
    sources: Vec<ProgramSource>,
    /// Shared with the clients that read it; copied when it changes meanwhile.
    catalogue: Arc<Catalogue>,
    list_timeout: Duration,
    lister: Option<ProgramLister>,
    /// Requests that wait for the listing.
    waiting: Vec<(ClientId, RequestNumber)>,
}

/// The catalogues of all clients.
#[derive(Default)]
pub(super) struct Catalogues {
    all: Vec<SharedCatalogue>,
}

impl Catalogues {
    /// Returns the index of the catalogue of these programs.
    pub(super) fn find_or_add(&mut self, sources: Vec<ProgramSource>, list_timeout: Duration) -> usize {
        if let Some(place) = self.all.iter().position(|one| one.sources == sources) {
            return place;
        }
        self.all.push(SharedCatalogue {
            catalogue: Arc::new(Catalogue::new(sources.clone())),
            sources,
            list_timeout,
            lister: None,
            waiting: Vec::new(),
        });
        self.all.len() - 1
    }

    /// Returns the listings in progress, each with the index of its catalogue.
    pub(super) fn listers(&self) -> impl Iterator<Item = (usize, &ProgramLister)> {
        self.all.iter().enumerate().filter_map(|(place, one)| Some((place, one.lister.as_ref()?)))
    }

    /// Passes a worker's message to its listing; returns whether the worker is idle again.
    pub(super) fn on_worker_message(&mut self, worker: WorkerId, message: FromWorker) -> bool {
        for one in &mut self.all {
            if let Some(lister) = one.lister.as_mut().filter(|lister| lister.is_used_by(worker)) {
                return lister.on_worker_message(Arc::make_mut(&mut one.catalogue), worker, message);
            }
        }
        false
    }

    pub(super) fn on_worker_died(&mut self, worker: WorkerId) {
        for one in &mut self.all {
            if let Some(lister) = one.lister.as_mut().filter(|lister| lister.is_used_by(worker)) {
                lister.on_worker_died(Arc::make_mut(&mut one.catalogue), worker);
            }
        }
    }

    /// Ends all listings, because there are no workers any more.
    pub(super) fn fail_all(&mut self, why: &str) {
        for one in &mut self.all {
            if let Some(lister) = &mut one.lister {
                lister.fail_remaining(Arc::make_mut(&mut one.catalogue), why);
            }
        }
    }

    /// Counts a failed start for a listing and gives the listing up after too many, unless a worker is ready.
    /// Workers that are still starting do not count, because all of them may fail like this one.
    pub(super) fn on_start_failed(&mut self, place: usize, slots: usize, is_worker_ready: bool, error: &str) {
        let one = &mut self.all[place];
        let Some(lister) = &mut one.lister else { return };
        if lister.count_failed_start(slots) && !is_worker_ready {
            lister.fail_remaining(Arc::make_mut(&mut one.catalogue), error);
        }
    }
}

impl Scheduler {
    pub(super) async fn list(&mut self, client: ClientId, request: RequestNumber) {
        let Some(entry) = self.clients.get(&client) else { return };
        let (place, events) = (entry.catalogue, entry.events.clone());
        let one = &mut self.catalogues.all[place];
        if one.lister.is_none() {
            let unlisted = one.catalogue.unlisted();
            if unlisted.is_empty() {
                let catalogue = Ok(Arc::clone(&one.catalogue));
                return events.send(ClientEvent::Listed { request, catalogue });
            }
            if let Err(error) = self.start_pool().await {
                return events.send(ClientEvent::Listed { request, catalogue: Err(error) });
            }
            let one = &mut self.catalogues.all[place];
            one.lister = Some(ProgramLister::new(unlisted, one.list_timeout));
        }
        self.catalogues.all[place].waiting.push((client, request));
    }

    /// Responds to the requests that waited for a listing which is done.
    pub(super) fn finish_listings(&mut self) {
        for one in &mut self.catalogues.all {
            if one.lister.as_ref().is_none_or(|lister| !lister.is_done()) {
                continue;
            }
            one.lister = None;
            Arc::make_mut(&mut one.catalogue).rebuild_index();
            let waiting = std::mem::take(&mut one.waiting);
            let mut logged = Vec::new();
            for (client, request) in waiting {
                let Some(entry) = self.clients.get(&client) else { continue };
                if !logged.contains(&client) {
                    logged.push(client);
                    entry.events.log(None, broken_programs(&one.catalogue));
                }
                let catalogue = Ok(Arc::clone(&one.catalogue));
                entry.events.send(ClientEvent::Listed { request, catalogue });
            }
        }
    }

    /// Removes requests of a client that wait for a listing; a listing that no request waits for is aborted.
    pub(super) async fn cancel_listings(&mut self, client: ClientId) {
        for one in &mut self.catalogues.all {
            one.waiting.retain(|(waiting, _)| *waiting != client);
        }
        self.abort_unused_listings().await;
    }

    pub(super) async fn cancel_listing(&mut self, client: ClientId, request: RequestNumber) {
        for one in &mut self.catalogues.all {
            one.waiting.retain(|waiting| *waiting != (client, request));
        }
        self.abort_unused_listings().await;
    }

    async fn abort_unused_listings(&mut self) {
        for one in self.catalogues.all.iter_mut().filter(|one| one.waiting.is_empty()) {
            if let (Some(lister), Some(pool)) = (one.lister.take(), &mut self.pool) {
                lister.abort(pool).await;
                // Some programs may have been listed anew.
                Arc::make_mut(&mut one.catalogue).rebuild_index();
            }
        }
    }

    pub(super) async fn assign_to_listing(&mut self, place: usize, worker: WorkerId) {
        let Some(pool) = &mut self.pool else { return };
        let one = &mut self.catalogues.all[place];
        if let Some(lister) = &mut one.lister {
            lister.assign(pool, &one.catalogue, worker).await;
        }
    }
}

fn broken_programs(catalogue: &Catalogue) -> Vec<ClientLogLine> {
    let error = |entry: &crate::discovery::ProgramEntry| match &entry.listing {
        ListingState::Broken { error } => Some(ClientLogLine::new(LogLevel::Error, error.clone())),
        ListingState::Listed { .. } | ListingState::Unknown => None,
    };
    catalogue.programs().iter().filter_map(error).collect()
}
