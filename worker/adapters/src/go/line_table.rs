//! Function locations from the line table that the Go runtime uses for stack traces. Every program has this
//! table, even without debug information. Works on bytes; a damaged table yields no locations.

use super::listing::is_test_name;

/// Magic numbers of the tables of Go 1.18 and 1.19, and of Go 1.20 and later.
const MAGICS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];
/// Suffix of files whose functions can be tests.
const TEST_FILE_END: &str = "_test.go";
/// Maximum length of a function or file name.
const NAME_BYTES: usize = 4 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FunctionPlace {
    /// Name without its package.
    pub(super) name: String,
    pub(super) file: String,
    pub(super) line: u32,
}

/// Returns the functions in test files whose names can be test names.
pub(super) fn function_places(table: &[u8]) -> Vec<FunctionPlace> {
    let Some(table) = LineTable::open(table) else { return Vec::new() };
    (0..table.functions).filter_map(|number| table.place(number)).collect()
}

struct LineTable<'a> {
    names: &'a [u8],
    units: &'a [u8],
    files: &'a [u8],
    steps: &'a [u8],
    records: &'a [u8],
    functions: usize,
}

impl<'a> LineTable<'a> {
    fn open(table: &'a [u8]) -> Option<Self> {
        if !MAGICS.contains(&number(table, 0)?) {
            return None;
        }
        let word = |place: usize| match table.get(7)? {
            8 => {
                let bytes = table.get(8 + 8 * place..)?.first_chunk()?;
                usize::try_from(u64::from_le_bytes(*bytes)).ok()
            }
            4 => usize::try_from(number(table, 8 + 4 * place)?).ok(),
            _ => None,
        };
        let functions = word(0)?;
        let part = |place: usize| table.get(word(place)?..);
        let records = part(7)?;
        // A damaged count must not cause a long loop.
        let functions = functions.min(records.len() / 8);
        let (names, units, files, steps) = (part(3)?, part(4)?, part(5)?, part(6)?);
        Some(Self { names, units, files, steps, records, functions })
    }

    fn place(&self, function: usize) -> Option<FunctionPlace> {
        let record = offset(self.records, 8 * function + 4)?;
        let full_name = text(self.names, offset(self.records, record + 4)?)?;
        let local = full_name.rsplit('/').next().unwrap_or_default();
        let (_, name) = local.split_once('.')?;
        if !is_test_name(name) {
            return None;
        }
        let first = |field: usize| self.first_value(offset(self.records, record + field)?);
        let file = usize::try_from(first(20)?).ok()?;
        let unit = offset(self.records, record + 32)?;
        let file = text(self.files, offset(self.units, 4 * unit.checked_add(file)?)?)?;
        if !file.ends_with(TEST_FILE_END) {
            return None;
        }
        let line = first(24).and_then(|line| u32::try_from(line).ok()).filter(|line| *line > 0)?;
        Some(FunctionPlace { name: name.to_owned(), file: file.to_owned(), line })
    }

    /// Returns the value at the first instruction of a function.
    fn first_value(&self, steps: usize) -> Option<i64> {
        let mut value = 0_u32;
        for (shift, byte) in (0..32).step_by(7).zip(self.steps.get(steps..)?) {
            value |= u32::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                let step = i64::from(value >> 1) ^ -i64::from(value & 1);
                return Some(step - 1);
            }
        }
        None
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn offset(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(number(bytes, at)?).ok()
}

fn text(bytes: &[u8], at: usize) -> Option<&str> {
    let rest = bytes.get(at..)?;
    let end = memchr::memchr(0, &rest[..rest.len().min(NAME_BYTES)])?;
    std::str::from_utf8(&rest[..end]).ok()
}

#[cfg(test)]
mod cases {
    use super::*;

    /// A table with one function in one file, as written by Go 1.20.
    fn table(name: &str, file: &str, line: u32) -> Vec<u8> {
        let mut parts: [Vec<u8>; 5] = Default::default();
        parts[0] = [name.as_bytes(), b"\0"].concat();
        parts[1] = 0_u32.to_le_bytes().to_vec();
        parts[2] = [file.as_bytes(), b"\0"].concat();
        // An empty entry, then the steps of the file and of the line, starting at -1.
        let step = (line + 1) << 1;
        parts[3] = vec![
            0,
            2,
            1,
            0,
            u8::try_from(step & 0x7f | 0x80).unwrap(),
            u8::try_from(step >> 7).unwrap(),
            1,
            0,
        ];
        let record = [0_u32, 0, 0, 0, 0, 1, 4, 0, 0];
        let functions = [0_u32, 12, 16];
        parts[4] = functions.iter().chain(&record).flat_map(|word| word.to_le_bytes()).collect();
        let mut bytes = MAGICS[1].to_le_bytes().to_vec();
        bytes.extend_from_slice(&[0, 0, 1, 8]);
        let mut at = 8 + 8 * 8;
        let mut words = vec![1_u64, 1, 0];
        for part in &parts {
            words.push(at);
            at += part.len() as u64;
        }
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(parts.concat());
        bytes
    }

    fn places(table: &[u8]) -> Vec<FunctionPlace> {
        function_places(table)
    }

    #[test]
    fn function_of_a_test_file_has_a_place() {
        let bytes = table("example.com/m/p%2ev2.TestAdd", "/w/p_test.go", 300);
        let expected = FunctionPlace { name: "TestAdd".into(), file: "/w/p_test.go".into(), line: 300 };
        assert_eq!(places(&bytes), [expected]);
        for (name, file) in
            [("m/p.TestAdd", "/w/p.go"), ("m/p.TestAdd.func1", "/w/p_test.go"), ("m/p.add", "/w/p_test.go")]
        {
            assert_eq!(places(&table(name, file, 3)), [], "{name} in {file}");
        }
    }

    #[test]
    fn damaged_table_has_no_places_or_others() {
        let bytes = table("m/p.TestAdd", "/w/p_test.go", 3);
        for cut in 0..bytes.len() {
            places(&bytes[..cut]);
            let mut damaged = bytes.clone();
            damaged[cut] = 0xff;
            places(&damaged);
        }
        assert_eq!(places(b""), []);
    }
}
