//! Typed access to the attributes of a node, with a record of which were read:
//! an attribute that no importer looked at is an error, not a silent default.

use super::node::Problem;
use super::proto::{AttributeProto, NodeProto, TensorProto};
use std::cell::RefCell;
use std::collections::BTreeSet;

pub(super) struct Attributes<'a> {
    all: &'a [AttributeProto],
    read: RefCell<BTreeSet<String>>,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(node: &'a NodeProto) -> Attributes<'a> {
        Attributes {
            all: &node.attribute,
            read: RefCell::new(BTreeSet::new()),
        }
    }

    fn find(&self, name: &str) -> Option<&'a AttributeProto> {
        self.read.borrow_mut().insert(name.to_string());
        self.all.iter().find(|a| a.name() == name)
    }

    fn typed<T>(
        &self,
        name: &str,
        kind: &str,
        get: impl Fn(&'a AttributeProto) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let Some(a) = self.find(name) else {
            return Ok(None);
        };
        match get(a) {
            Some(v) => Ok(Some(v)),
            None => Problem::unsupported(format!("attribute `{name}` is not {kind}")),
        }
    }

    pub(super) fn int(&self, name: &str, default: i64) -> Result<i64, Problem> {
        Ok(self.optional_int(name)?.unwrap_or(default))
    }

    pub(super) fn optional_int(&self, name: &str) -> Result<Option<i64>, Problem> {
        self.typed(name, "an integer", |a| a.i)
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, Problem> {
        Ok(self.int(name, i64::from(default))? != 0)
    }

    pub(super) fn float(&self, name: &str, default: f32) -> Result<f32, Problem> {
        Ok(self.optional_float(name)?.unwrap_or(default))
    }

    pub(super) fn optional_float(&self, name: &str) -> Result<Option<f32>, Problem> {
        self.typed(name, "a number", |a| a.f)
    }

    /// Serialisers leave out an empty list and, some of them, the type with it.
    pub(super) fn ints(&self, name: &str) -> Result<Option<&'a [i64]>, Problem> {
        self.typed(name, "a list of integers", |a| {
            (a.i.is_none() && a.f.is_none() && a.s.is_none()).then_some(&a.ints[..])
        })
    }

    pub(super) fn floats(&self, name: &str) -> Result<Option<&'a [f32]>, Problem> {
        self.typed(name, "a list of numbers", |a| {
            a.f.is_none().then_some(&a.floats[..])
        })
    }

    pub(super) fn text(&self, name: &str, default: &str) -> Result<String, Problem> {
        let get = |a: &AttributeProto| String::from_utf8(a.s.clone()?).ok();
        Ok(self
            .typed(name, "a string", get)?
            .unwrap_or_else(|| default.to_string()))
    }

    pub(super) fn tensor(&self, name: &str) -> Result<Option<&'a TensorProto>, Problem> {
        self.typed(name, "a tensor", |a| a.t.as_ref())
    }

    /// Marks attributes that do not matter to inference.
    pub(super) fn ignore(&self, names: &[&str]) {
        self.read
            .borrow_mut()
            .extend(names.iter().map(|n| n.to_string()));
    }

    /// The attributes that were never asked for.
    pub(super) fn unread(&self) -> Vec<&'a str> {
        let read = self.read.borrow();
        self.all
            .iter()
            .map(|a| a.name())
            .filter(|n| !read.contains(*n))
            .collect()
    }
}
