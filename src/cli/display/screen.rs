//! The redrawn part of the terminal: computes the bytes that replace the previous drawing with the next.

use super::{
    TerminalSize,
    style::{ColourMode, StyledLine},
};

/// Drawing at the bottom of the terminal.
///
/// The cursor stays visible at the end of the last line, so a killed process leaves nothing to restore.
#[derive(Debug)]
pub(super) struct LiveScreen {
    colour: ColourMode,
    /// Width in columns of each drawn line.
    drawn: Vec<usize>,
    /// Number of rows between the last drawn line and the cursor below it.
    rows_below: usize,
}

/// Synchronised update: the terminal shows everything between these sequences at once. Terminals without
/// support ignore them.
const BEGIN_UPDATE: &str = "\u{1b}[?2026h";
const END_UPDATE: &str = "\u{1b}[?2026l";
/// Without wrapping, a line wider than computed is clipped instead of moving everything below it.
const WRAP_OFF: &str = "\u{1b}[?7l";
const WRAP_ON: &str = "\u{1b}[?7h";
/// Erase to the end of the line, and to the end of the screen.
const ERASE_LINE: &str = "\u{1b}[K";
const ERASE_BELOW: &str = "\u{1b}[J";

impl LiveScreen {
    /// Returns an empty screen.
    pub(super) fn new(colour: ColourMode) -> Self {
        Self { colour, drawn: Vec::new(), rows_below: 0 }
    }

    /// Returns the bytes that print `above` (lines with line ends) in place of the view, and the view below.
    /// An empty view removes the view.
    pub(super) fn replace(&mut self, above: &str, view: &[StyledLine], size: TerminalSize) -> String {
        let mut out = String::with_capacity(above.len() + 1024);
        out.push_str(BEGIN_UPDATE);
        self.move_to_top(&mut out, size);
        if !above.is_empty() {
            // Erase before the lines. Erasing after a line that fills its row would erase the line's last
            // character.
            out.push_str(ERASE_BELOW);
            out.push_str(above);
        }
        if !view.is_empty() {
            out.push_str(WRAP_OFF);
        }
        for (place, line) in view.iter().enumerate() {
            if place > 0 {
                out.push('\n');
            }
            line.render(self.colour, &mut out);
            out.push_str(ERASE_LINE);
        }
        if !view.is_empty() {
            out.push_str(WRAP_ON);
        }
        out.push_str(ERASE_BELOW);
        out.push_str(END_UPDATE);
        self.drawn = view.iter().map(StyledLine::columns).collect();
        self.rows_below = 0;
        out
    }

    /// Records that the terminal's echo has moved the cursor down by `rows`.
    pub(super) fn move_down(&mut self, rows: usize) {
        if !self.is_empty() {
            self.rows_below += rows;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.drawn.is_empty()
    }

    /// Moves the cursor to the first drawn line. A terminal that has become narrower has wrapped the drawn
    /// lines, so the rows are computed from the new width.
    fn move_to_top(&self, out: &mut String, size: TerminalSize) {
        let width = size.columns.max(1);
        let rows: usize = self.drawn.iter().map(|columns| columns.div_ceil(width).max(1)).sum();
        let up = (rows.saturating_sub(1) + self.rows_below).min(size.rows.saturating_sub(1));
        if up > 0 {
            out.push_str(&format!("\u{1b}[{up}A"));
        }
        if rows > 0 {
            out.push('\r');
        }
    }
}
