//! Deliberate mistakes, which the checks must find.

/// What the program would do wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum PlantedMistake {
    #[default]
    None,
    /// The coordinator has the run finished as soon as nothing waits to be handed out.
    FinishOnEmptyQueue,
    /// The coordinator has nothing sent again.
    NoResend,
    /// The watchdog sends again what was not proven, behind the completion.
    ResendAfterCompletion,
    /// The watchdog does not announce its completion.
    UnannouncedCompletion,
    /// The coordinator completes a run whose watchdog is late and lives.
    CompletionByBoth,
    /// The worker sends a result before it stands in its journal.
    JournalAfterSend,
    /// The coordinator passes a completion on before the watchdog says that it has finished.
    CompletionNotHeld,
    /// The coordinator answers when it orders the finish.
    ResponseWithFinish,
    /// The coordinator does not ask for a dead worker's journal, and so waits for its lease for ever.
    JournalNotAsked,
    /// The coordinator gives a dead worker up and reads no journal.
    JournalNotRead,
    /// A watchdog left alone believes that its coordinator had told the client all.
    NothingDueAlone,
}
