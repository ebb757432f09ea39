//! Fenced blocks on the documentation's pages, for the tests that check and execute their commands.

pub(crate) const EXECUTED: &str = "<!-- executed in: ";
pub(crate) const NOT_EXECUTED: &str = "<!-- not executed: ";

/// A fenced block of a page.
pub(crate) struct Block<'a> {
    /// Line number of the opening fence, counted from 1.
    pub(crate) number: usize,
    /// The line above the block.
    pub(crate) comment: &'a str,
    /// The opening fence.
    pub(crate) fence: &'a str,
    /// The lines between the fences.
    pub(crate) lines: Vec<&'a str>,
}

/// Returns the blocks of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block<'_>> {
    let is_fence = |line: &str| line.trim_start().starts_with("```");
    let mut blocks = Vec::new();
    let mut lines = (1..).zip(page.lines());
    let mut comment = "";
    while let Some((number, fence)) = lines.next() {
        if is_fence(fence) {
            let lines = lines.by_ref().map(|(_, line)| line).take_while(|line| !is_fence(line)).collect();
            blocks.push(Block { number, comment, fence, lines });
        }
        comment = fence;
    }
    blocks
}

impl<'a> Block<'a> {
    /// Returns whether the block contains commands.
    pub(crate) fn is_console(&self) -> bool {
        self.fence == "```console"
    }

    /// Returns the projects that the block is executed in; `None` if it is not executed.
    pub(crate) fn projects(&self) -> Option<&'a str> {
        if self.comment.starts_with(NOT_EXECUTED) {
            return None;
        }
        let named = self.comment.strip_prefix(EXECUTED);
        Some(named.map_or("", |rest| rest.trim_end_matches(" -->")))
    }
}
