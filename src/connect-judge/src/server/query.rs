//! Query parameters of GET requests.

use hyper::Uri;

use super::checks::Feedback;

/// The parameters of a query, decoded, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueryParameters(pub(super) Vec<(String, Vec<u8>)>);

impl QueryParameters {
    pub(super) fn of(uri: &Uri) -> Self {
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let decoded = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (String::from_utf8_lossy(&percent_decoded(name)).into_owned(), percent_decoded(value))
        });
        Self(decoded.collect())
    }

    /// Returns the value of a parameter that should be there once at most.
    pub(super) fn single(&self, name: &str, feedback: &mut Feedback) -> Option<String> {
        let count = self.0.iter().filter(|(known, _)| known == name).count();
        if count > 1 {
            feedback.push(format!("query parameter {name} {count} times, expected once"));
        }
        self.get(name).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
    }
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let digits = after.first_chunk::<2>().and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) => {
                decoded.push(byte);
                rest = &after[2..];
            }
            None => decoded.push(if *first == b'+' { b' ' } else { *first }),
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = QueryParameters::of(&"/x?a=%7b%22+&b&a=2%&c=%zz".parse().unwrap());
        assert_eq!(query.get("a"), Some(&b"{\" "[..]));
        assert_eq!(
            (query.get("b"), query.get("c"), query.get("d")),
            (Some(&b""[..]), Some(&b"%zz"[..]), None)
        );
        let mut feedback = Vec::new();
        query.single("a", &mut feedback);
        assert_eq!(feedback, ["query parameter a 2 times, expected once"]);
    }
}
