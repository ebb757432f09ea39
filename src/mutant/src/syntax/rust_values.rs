//! Values that mutants of a Rust function return, by return type.

use super::table::text_of;
use tree_sitter::Node;

/// Maximum number of values of a type. Without a limit, tuples would have the product of their parts'
/// values.
const MAX_VALUES: usize = 100;
/// Maximum nesting depth of types.
const DEPTH: usize = 8;

/// Returns values of a type; none if a value can't be made easily.
pub(super) fn of_type(returned: Option<Node<'_>>, text: &str) -> Vec<String> {
    match returned {
        None => vec![String::new()],
        Some(node) if node.kind() == "unit_type" => vec![String::new()],
        Some(node) => of_node(node, text, DEPTH),
    }
}

fn of_node(node: Node<'_>, text: &str, depth: usize) -> Vec<String> {
    let Some(depth) = depth.checked_sub(1) else { return vec!["Default::default()".to_owned()] };
    let mut values = match node.kind() {
        "unit_type" => owned(&["()"]),
        "primitive_type" => owned(of_primitive(text_of(node, text))),
        "reference_type" => of_reference(node, text, depth),
        "generic_type" | "type_identifier" | "scoped_type_identifier" => of_named(node, text, depth),
        "tuple_type" => of_tuple(node, text, depth),
        "array_type" => of_array(node, text, depth),
        _ => Vec::new(),
    };
    values.truncate(MAX_VALUES);
    values
}

fn owned(values: &[&str]) -> Vec<String> {
    values.iter().map(|&value| value.to_owned()).collect()
}

fn of_primitive(name: &str) -> &'static [&'static str] {
    match name {
        "bool" => &["true", "false"],
        "f32" | "f64" => &["0.0", "1.0", "-1.0"],
        "char" => &["Default::default()"],
        "str" => &[],
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => &["0", "1", "-1"],
        _ => &["0", "1"],
    }
}

fn of_reference(node: Node<'_>, text: &str, depth: usize) -> Vec<String> {
    let mut cursor = node.walk();
    let is_mutable = node.named_children(&mut cursor).any(|child| child.kind() == "mutable_specifier");
    let Some(target) = node.child_by_field_name("type") else { return Vec::new() };
    of_reference_to(target, is_mutable, text, depth)
}

fn of_reference_to(target: Node<'_>, is_mutable: bool, text: &str, depth: usize) -> Vec<String> {
    let is_text = target.kind() == "primitive_type" && text_of(target, text) == "str";
    // An array type without a length is a slice.
    let element =
        target.child_by_field_name("element").filter(|_| target.child_by_field_name("length").is_none());
    match element {
        Some(element) => {
            let empty = if is_mutable { "&mut []" } else { "&[]" };
            let of_elements = of_node(element, text, depth).into_iter();
            let leaked = of_elements.map(|value| format!("Vec::leak(vec![{value}])"));
            std::iter::once(empty.to_owned()).chain(leaked).collect()
        }
        None if is_text && !is_mutable => owned(&["\"\"", "\"xyzzy\""]),
        None if is_text => Vec::new(),
        None => {
            let values = of_node(target, text, depth).into_iter();
            values.map(|value| format!("Box::leak(Box::new({value}))")).collect()
        }
    }
}

fn of_named(node: Node<'_>, text: &str, depth: usize) -> Vec<String> {
    let name = node.child_by_field_name("type").filter(|_| node.kind() == "generic_type").unwrap_or(node);
    let path = text_of(name, text);
    let name = path.rsplit("::").next().unwrap_or(path).trim();
    let arguments = type_arguments(node);
    let of = |place: usize| arguments.get(place).map_or_else(Vec::new, |node| of_node(*node, text, depth));
    let each = |before: &str, values: Vec<String>, behind: &str| -> Vec<String> {
        values.into_iter().map(|value| format!("{before}{value}{behind}")).collect()
    };
    match name {
        "Option" => [owned(&["None"]), each("Some(", of(0), ")")].concat(),
        "Result" if arguments.is_empty() => owned(&["Ok(Default::default())"]),
        "Result" => each("Ok(", of(0), ")"),
        "String" => owned(&["String::new()", "\"xyzzy\".into()"]),
        "Box" | "Rc" | "Arc" | "Cell" | "RefCell" | "Mutex" if !arguments.is_empty() => {
            each(&format!("{path}::new("), of(0), ")")
        }
        // `vec![]` might be missing in a crate without the standard library.
        "Vec" | "HashSet" | "BTreeSet" | "VecDeque" | "LinkedList" | "BinaryHeap" => {
            [vec![format!("{path}::new()")], each(&format!("{path}::from(["), of(0), "])")].concat()
        }
        "HashMap" | "BTreeMap" => {
            let values = of(1);
            let pairs = of(0).into_iter().flat_map(|key| {
                values.iter().map(move |value| format!("({key}, {value})")).collect::<Vec<_>>()
            });
            [vec![format!("{path}::new()")], each(&format!("{path}::from(["), pairs.collect(), "])")].concat()
        }
        "Cow" => of_cow(path, arguments.first().copied(), text, depth),
        "NonZero" => of_nonzero(path, &of(0)),
        _ if name.starts_with("NonZeroI") => owned_nonzero(path, &["1", "-1"]),
        _ if name.starts_with("NonZeroU") => owned_nonzero(path, &["1"]),
        _ => {
            let [_] = arguments.as_slice() else { return owned(&["Default::default()"]) };
            // A container of the crate; tries the usual constructors of the standard library.
            let made = [("::from_iter([", "])"), ("::new(", ")"), ("::from(", ")")];
            let filled =
                made.iter().flat_map(|(before, behind)| each(&format!("{path}{before}"), of(0), behind));
            [owned(&["Default::default()"]), vec![format!("{path}::new()")], filled.collect()].concat()
        }
    }
}

fn of_cow(path: &str, target: Option<Node<'_>>, text: &str, depth: usize) -> Vec<String> {
    let Some(target) = target else { return owned(&["Default::default()"]) };
    let is_text = text_of(target, text) == "str";
    if !is_text && target.kind() != "array_type" {
        return vec![
            format!("{path}::Borrowed(Default::default())"),
            format!("{path}::Owned(Default::default())"),
        ];
    }
    let values = of_reference_to(target, false, text, depth);
    let borrowed = values.iter().map(|value| format!("{path}::Borrowed({value})"));
    let owned = values.iter().map(|value| match value.as_str() {
        "&[]" => format!("{path}::Owned(Vec::new())"),
        value if is_text => format!("{path}::Owned({value}.into())"),
        value => format!("{path}::Owned({value}.to_vec())"),
    });
    borrowed.chain(owned).collect()
}

/// Wraps the values other than zero.
fn of_nonzero(path: &str, values: &[String]) -> Vec<String> {
    let values: Vec<&str> = values.iter().map(String::as_str).filter(|value| *value != "0").collect();
    owned_nonzero(path, &values)
}

fn owned_nonzero(path: &str, values: &[&str]) -> Vec<String> {
    values.iter().map(|value| format!("{path}::new({value}).unwrap()")).collect()
}

/// Returns the type arguments of a generic type, without lifetimes.
fn type_arguments(node: Node<'_>) -> Vec<Node<'_>> {
    let Some(arguments) = node.child_by_field_name("type_arguments") else { return Vec::new() };
    let mut cursor = arguments.walk();
    arguments.named_children(&mut cursor).filter(|argument| argument.kind() != "lifetime").collect()
}

fn of_tuple(node: Node<'_>, text: &str, depth: usize) -> Vec<String> {
    let mut cursor = node.walk();
    let parts = node.named_children(&mut cursor).map(|part| of_node(part, text, depth));
    let mut products = vec![Vec::new()];
    for values in parts {
        let longer = products.iter().flat_map(|product: &Vec<String>| {
            values.iter().map(move |value| [product.as_slice(), std::slice::from_ref(value)].concat())
        });
        products = longer.take(MAX_VALUES).collect();
    }
    products.into_iter().map(|product| format!("({})", product.join(", "))).collect()
}

fn of_array(node: Node<'_>, text: &str, depth: usize) -> Vec<String> {
    let (Some(element), Some(length)) =
        (node.child_by_field_name("element"), node.child_by_field_name("length"))
    else {
        return Vec::new();
    };
    let length = text_of(length, text);
    of_node(element, text, depth).into_iter().map(|value| format!("[{value}; {length}]")).collect()
}
