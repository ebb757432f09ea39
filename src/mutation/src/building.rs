//! Runs a build while forwarding its progress to the observer, which may cancel it.

use std::os::fd::AsFd as _;

use tokio::{sync::mpsc, task::spawn_blocking};

use crate::{
    build::build_guarded,
    error::MutateError,
    languages::{FoundProject, GuardContext, GuardedBuild},
    observer::{MutationObserver, ObserverRequest},
    test_finder::TestFinder,
    unfinished::Unfinished,
    work_place::WorkPlace,
};
use heeler_cargo::{BuildScope, BuildSupervision};

/// Capacity of the progress queue. A build reports at most once a second, so it does not wait for the
/// observer.
const SHOWN_LATER: usize = 16;

/// How a build ended.
pub(crate) enum BuildEnd {
    Built(Box<GuardedBuild>, WorkPlace),
    /// The observer cancelled the build, and all of its processes have ended.
    Ended(Unfinished),
    /// The observer asked a second time. Processes that still run end with this process.
    Left,
}

enum BuildStep {
    Phase(String, String),
    Done(Box<Result<(GuardedBuild, WorkPlace), MutateError>>),
    Request(ObserverRequest),
}

/// A build and its surroundings.
pub(crate) struct FollowedBuild {
    pub(crate) project: FoundProject,
    pub(crate) place: WorkPlace,
    pub(crate) finder: &'static dyn TestFinder,
}

impl FollowedBuild {
    /// Runs the build to its end. Blocks.
    fn build(
        self,
        supervision: BuildSupervision<'_>,
        show_phase: &mut dyn FnMut(&str, &str),
    ) -> Result<(GuardedBuild, WorkPlace), MutateError> {
        let Self { project, place, finder } = self;
        let mut context = GuardContext { place: &place, supervision, finder, show_phase };
        Ok((build_guarded(project, &mut context)?, place))
    }
}

/// Builds the guarded tests, and reports progress to the observer.
///
/// # Errors
/// The project can't be copied or built.
///
/// Cancel safe: no, because the build keeps running.
pub(crate) async fn build_followed(
    request: FollowedBuild,
    observer: &mut dyn MutationObserver,
) -> Result<BuildEnd, MutateError> {
    // Dropping the canceller closes the pipe, which the build notices.
    let (cancelled, canceller) = heeler_sys::io::pipe().map_err(MutateError::Pipe)?;
    let mut canceller = Some(canceller);
    let (phases, mut shown) = mpsc::channel::<(String, String)>(SHOWN_LATER);
    let mut building = spawn_blocking(move || {
        let supervision = BuildSupervision {
            cancelled: Some(cancelled.as_fd()),
            scope: BuildScope::Tree,
            ..BuildSupervision::default()
        };
        let mut say = |label: &str, words: &str| {
            // The observer is gone, so nothing needs to be shown.
            let _gone = phases.blocking_send((label.to_owned(), words.to_owned()));
        };
        request.build(supervision, &mut say)
    });
    let mut unfinished = None;
    loop {
        let step = tokio::select! {
            biased;
            Some((label, words)) = shown.recv() => BuildStep::Phase(label, words),
            done = &mut building => match done {
                Ok(built) => BuildStep::Done(Box::new(built)),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
            request = observer.next_request(unfinished.is_some()) => BuildStep::Request(request),
        };
        match step {
            BuildStep::Phase(label, words) => observer.show_phase(&label, &words),
            BuildStep::Done(built) => {
                return match (unfinished, *built) {
                    // A cancelled build reports the processes that were killed as errors.
                    (Some(unfinished), _) => Ok(BuildEnd::Ended(unfinished)),
                    (None, Ok((build, place))) => Ok(BuildEnd::Built(Box::new(build), place)),
                    (None, Err(error)) => Err(error),
                };
            }
            BuildStep::Request(ObserverRequest::Pause) => observer.pause(),
            // The display changes only with a new phase.
            BuildStep::Request(ObserverRequest::Tick) => {}
            BuildStep::Request(ObserverRequest::End(_)) if unfinished.is_some() => return Ok(BuildEnd::Left),
            BuildStep::Request(ObserverRequest::End(why)) => {
                unfinished = Some(why);
                drop(canceller.take());
            }
        }
    }
}
