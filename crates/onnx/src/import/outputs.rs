//! What a model takes and gives of types that operators do not compute in.

use super::Importer;
use crate::error::ImportError;
use crate::narrow::Narrow;
use crate::proto::ValueInfoProto;
use graph::ops::Op;
use graph::{ModelError, ValueId};

impl Importer<'_> {
    /// What stands for an input, or for the value of one, where operators read it.
    pub(super) fn taken(&mut self, id: ValueId) -> Result<ValueId, ImportError> {
        let Some(narrow) = Narrow::of_stored(self.model[id].dtype()) else {
            return Ok(id);
        };
        let carrier = self.converted(id, Op::Cast(narrow.carrier))?;
        self.narrow.insert(carrier, narrow);
        Ok(carrier)
    }

    /// An output of the type that a value stands for.
    fn given(&mut self, id: ValueId, name: &str) -> Result<ValueId, ImportError> {
        let Some(narrow) = self.narrow.get(&id) else {
            return Ok(id);
        };
        match narrow.stored() {
            Some(stored) => self.converted(id, Op::Cast(stored)),
            None => Err(ImportError::Invalid(format!(
                "the output `{name}` is of type {}, which no output here has; cast it to another type",
                narrow.name
            ))),
        }
    }

    /// Constants are converted at once.
    fn converted(&mut self, id: ValueId, cast: Op) -> Result<ValueId, ImportError> {
        let name = self.model[id].name().to_string();
        let computed = self.model.compute(&cast, &[Some(id)], usize::MAX);
        if let Ok(Some(mut values)) = computed
            && let Some(value) = values.pop()
        {
            return Ok(self.model.add_result(&name, value));
        }
        let failed = |e: ModelError| ImportError::Invalid(e.to_string());
        self.model.add(&name, cast, &[id]).map_err(failed)
    }

    pub(super) fn bind_outputs(&mut self, outputs: &[ValueInfoProto]) -> Result<(), ImportError> {
        for output in outputs {
            let name = output.name();
            if let Some(source) = self.unreadable.remove(name) {
                let name = name.to_string();
                return Err(ImportError::Tensor { name, source });
            }
            let Some(&Some(id)) = self.values.get(name) else {
                return Err(ImportError::Invalid(format!(
                    "nothing makes the output `{name}`"
                )));
            };
            if self.sequences.contains_key(&id) {
                return Err(ImportError::Invalid(format!(
                    "the output `{name}` is a sequence of tensors; give each of its tensors an \
                     output of its own"
                )));
            }
            let id = self.given(id, name)?;
            self.model.add_named_output(id, name);
        }
        // Counts come after all results.
        for (i, output) in outputs.iter().enumerate() {
            let Some(Some(id)) = self.values.get(output.name()) else {
                continue;
            };
            for extent in self.live.extents(*id) {
                self.model.crop_output(i, extent.axis, extent.count);
            }
        }
        Ok(())
    }
}
