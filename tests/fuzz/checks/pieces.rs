//! Bytes split into pieces. The last bytes determine where the others are split, so a seed is a plain file
//! with a short tail.

/// More pieces than this cost time without adding cases.
const PIECES: usize = 16;

/// Returns the bytes before the last 0xff, and their pieces as split by the bytes after it. Without a 0xff
/// there is one piece.
pub fn pieces(bytes: &[u8]) -> (&[u8], Vec<&[u8]>) {
    let Some(end) = bytes.iter().rposition(|byte| *byte == 0xff) else { return (bytes, vec![bytes]) };
    let (whole, lengths) = (&bytes[..end], &bytes[end + 1..]);
    let mut pieces = Vec::new();
    let mut rest = whole;
    // Repeated, because the interesting places may come late.
    for length in lengths.iter().take(PIECES) {
        let (piece, behind) = rest.split_at(rest.len().min(usize::from(*length)));
        pieces.push(piece);
        rest = behind;
    }
    pieces.push(rest);
    (whole, pieces)
}
