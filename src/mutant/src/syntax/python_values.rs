//! Values that mutants of a Python function return, by return annotation.

use super::table::text_of;
use tree_sitter::Node;

/// Returns values of the annotated type; Python's `None` without an annotation or for other types.
pub(super) fn of_annotation(returned: Option<Node<'_>>, text: &str) -> Vec<String> {
    let annotation = returned.map_or("", |node| text_of(node, text));
    let values = of_type(annotation.trim().trim_matches(['"', '\'']).trim());
    values.iter().map(|&value| value.to_owned()).collect()
}

fn of_type(annotation: &str) -> &'static [&'static str] {
    if annotation.contains('|') {
        return &["None"];
    }
    let name = annotation.split('[').next().unwrap_or_default().trim();
    match name.rsplit('.').next().unwrap_or_default() {
        "bool" => &["True", "False"],
        "int" => &["0", "1"],
        "float" => &["0.0", "1.0"],
        "str" => &["\"\""],
        "bytes" => &["b\"\""],
        "list" | "List" => &["[]"],
        "dict" | "Dict" => &["{}"],
        "tuple" | "Tuple" => &["()"],
        "set" | "Set" => &["set()"],
        // The function never returns, so every caller would notice a return.
        "NoReturn" | "Never" => &[],
        _ => &["None"],
    }
}
