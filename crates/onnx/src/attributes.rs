//! Typed access to the attributes of a node, with a record of which were read:
//! an attribute that no importer looked at is an error, not a silent default,
//! and so is one of another type.

use crate::node::Problem;
use crate::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// The types of attributes: `AttributeProto.AttributeType` of the published schema.
const TYPES: [&str; 14] = [
    "FLOAT",
    "INT",
    "STRING",
    "TENSOR",
    "GRAPH",
    "FLOATS",
    "INTS",
    "STRINGS",
    "TENSORS",
    "GRAPHS",
    "SPARSE_TENSOR",
    "SPARSE_TENSORS",
    "TYPE_PROTO",
    "TYPE_PROTOS",
];

/// The types whose fields of an attribute hold something.
fn held(a: &AttributeProto) -> impl Iterator<Item = &'static str> {
    let fields = [
        ("FLOAT", a.f.is_some()),
        ("INT", a.i.is_some()),
        ("STRING", a.s.is_some()),
        ("TENSOR", a.t.is_some()),
        ("GRAPH", a.g.is_some()),
        ("FLOATS", !a.floats.is_empty()),
        ("INTS", !a.ints.is_empty()),
        ("STRINGS", !a.strings.is_empty()),
        ("TENSORS", !a.tensors.is_empty()),
    ];
    fields.into_iter().filter(|f| f.1).map(|f| f.0)
}

/// Whether an attribute is of type `want`. Some serialisers leave out the type,
/// and some a value that is 0 or empty.
fn check_type(a: &AttributeProto, want: &str) -> Result<(), Problem> {
    let number = a.r#type();
    let declared = match number {
        0 => None,
        n => Some(
            TYPES
                .get((n as usize).wrapping_sub(1))
                .map_or_else(|| format!("number {n}"), |t| t.to_string()),
        ),
    };
    let wrong = match (&declared, held(a).find(|h| *h != want)) {
        (Some(t), _) if t != want => format!("of type {t}"),
        (_, Some(other)) => format!("given as {other}"),
        (None, None) if held(a).next().is_none() && !want.ends_with('S') => {
            "without a value".into()
        }
        _ => return Ok(()),
    };
    Problem::unsupported(format!(
        "attribute `{}` is {wrong}, where {want} is needed",
        a.name()
    ))
}

pub(crate) struct Attributes<'a> {
    all: &'a [AttributeProto],
    read: RefCell<BTreeSet<String>>,
}

impl<'a> Attributes<'a> {
    pub(crate) fn new(node: &'a NodeProto) -> Attributes<'a> {
        Attributes {
            all: &node.attribute,
            read: RefCell::new(BTreeSet::new()),
        }
    }

    fn find(&self, name: &str) -> Option<&'a AttributeProto> {
        self.read.borrow_mut().insert(name.to_string());
        self.all.iter().find(|a| a.name() == name)
    }

    fn typed(&self, name: &str, want: &str) -> Result<Option<&'a AttributeProto>, Problem> {
        let found = self.find(name);
        if let Some(a) = found {
            check_type(a, want)?;
        }
        Ok(found)
    }

    pub(crate) fn int(&self, name: &str, default: i64) -> Result<i64, Problem> {
        Ok(self.optional_int(name)?.unwrap_or(default))
    }

    pub(crate) fn optional_int(&self, name: &str) -> Result<Option<i64>, Problem> {
        Ok(self.typed(name, "INT")?.map(AttributeProto::i))
    }

    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, Problem> {
        Ok(self.int(name, i64::from(default))? != 0)
    }

    pub(crate) fn float(&self, name: &str, default: f32) -> Result<f32, Problem> {
        Ok(self.optional_float(name)?.unwrap_or(default))
    }

    pub(crate) fn optional_float(&self, name: &str) -> Result<Option<f32>, Problem> {
        Ok(self.typed(name, "FLOAT")?.map(AttributeProto::f))
    }

    pub(crate) fn ints(&self, name: &str) -> Result<Option<&'a [i64]>, Problem> {
        Ok(self.typed(name, "INTS")?.map(|a| &a.ints[..]))
    }

    pub(crate) fn floats(&self, name: &str) -> Result<Option<&'a [f32]>, Problem> {
        Ok(self.typed(name, "FLOATS")?.map(|a| &a.floats[..]))
    }

    pub(crate) fn text(&self, name: &str, default: &str) -> Result<String, Problem> {
        let Some(a) = self.typed(name, "STRING")? else {
            return Ok(default.to_string());
        };
        match String::from_utf8(a.s().to_vec()) {
            Ok(text) => Ok(text),
            Err(_) => Problem::unsupported(format!("attribute `{name}` is not UTF-8")),
        }
    }

    pub(crate) fn texts(&self, name: &str) -> Result<Option<Vec<String>>, Problem> {
        let Some(a) = self.typed(name, "STRINGS")? else {
            return Ok(None);
        };
        let texts = a.strings.iter().map(|s| String::from_utf8(s.to_vec()));
        match texts.collect() {
            Ok(texts) => Ok(Some(texts)),
            Err(_) => Problem::unsupported(format!("attribute `{name}` is not UTF-8")),
        }
    }

    pub(crate) fn tensor(&self, name: &str) -> Result<Option<&'a TensorProto>, Problem> {
        let Some(a) = self.typed(name, "TENSOR")? else {
            return Ok(None);
        };
        match &a.t {
            Some(t) => Ok(Some(t)),
            None => Problem::unsupported(format!("attribute `{name}` is without a value")),
        }
    }

    /// A graph, which must be given.
    pub(crate) fn graph(&self, name: &str) -> Result<&'a GraphProto, Problem> {
        match self.typed(name, "GRAPH")?.and_then(|a| a.g.as_ref()) {
            Some(g) => Ok(g),
            None => Problem::unsupported(format!("it has no graph `{name}`")),
        }
    }

    pub(crate) fn optional_graph(&self, name: &str) -> Result<Option<&'a GraphProto>, Problem> {
        Ok(self.typed(name, "GRAPH")?.and_then(|a| a.g.as_ref()))
    }

    /// Marks attributes that do not matter to inference.
    pub(crate) fn ignore(&self, names: &[&str]) {
        self.read
            .borrow_mut()
            .extend(names.iter().map(|n| n.to_string()));
    }

    /// A name that two attributes bear.
    pub(crate) fn repeated(&self) -> Option<&'a str> {
        let mut names = BTreeSet::new();
        self.all
            .iter()
            .map(|a| a.name())
            .find(|n| !names.insert(*n))
    }

    /// The attributes that were never asked for.
    pub(crate) fn unread(&self) -> Vec<&'a str> {
        let read = self.read.borrow();
        self.all
            .iter()
            .map(|a| a.name())
            .filter(|n| !read.contains(*n))
            .collect()
    }
}
