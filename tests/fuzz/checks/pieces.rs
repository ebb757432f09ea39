//! Splits bytes into pieces. The last bytes determine the positions, so a seed is an ordinary file with a
//! short tail.

/// Maximum number of pieces. More would cost time without testing anything new.
const PIECES: usize = 16;

/// Returns the bytes before the last 0xff, and these bytes split into pieces whose lengths are the bytes
/// after it. Without a 0xff, there is one piece.
pub fn pieces(bytes: &[u8]) -> (&[u8], Vec<&[u8]>) {
    let Some(end) = bytes.iter().rposition(|byte| *byte == 0xff) else { return (bytes, vec![bytes]) };
    let (whole, lengths) = (&bytes[..end], &bytes[end + 1..]);
    let mut pieces = Vec::new();
    let mut rest = whole;
    // The bytes after the last length form the final piece.
    for length in lengths.iter().take(PIECES) {
        let (piece, behind) = rest.split_at(rest.len().min(usize::from(*length)));
        pieces.push(piece);
        rest = behind;
    }
    pieces.push(rest);
    (whole, pieces)
}
