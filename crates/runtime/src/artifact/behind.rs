//! What files of later versions have behind [`Stored`](super::Stored), in the order of the versions.

use super::{
    ALL_CONSTANTS_VERSION, NO_GROUPS_VERSION, NO_SETTINGS_VERSION, NO_ZEROS_VERSION,
    OLDEST_VERSION, SINGLE_CALLS_VERSION,
};
use crate::derived::{Derivation, outputs};
use crate::model::{Call, Manifest, State, StepGroup};
use crate::variants::Dim;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What files of [`OLDEST_VERSION`] do not have; it stands behind the rest.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Newer {
    /// Of each kernel.
    pub(super) algorithms: Vec<String>,
    /// Of each variant.
    pub(super) states: Vec<Vec<State>>,
}

/// What files up to [`SINGLE_CALLS_VERSION`] do not have; it stands behind [`Newer`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LaterCalls {
    /// Of each variant.
    pub(super) variants: Vec<Vec<CallsOfAlternative>>,
}

/// What files up to [`NO_GROUPS_VERSION`] do not have; it stands behind [`LaterCalls`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Groups {
    /// Of each variant.
    pub(super) variants: Vec<Vec<StepGroup>>,
    /// Of each variant; 0 if the compiler did not say.
    pub(super) threads: Vec<u32>,
}

/// What files up to [`ALL_CONSTANTS_VERSION`] do not have; it stands behind [`Groups`]. A constant that every variant
/// derives, of those that have it, is not in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Derived {
    /// Of each variant.
    pub(super) variants: Vec<Vec<Derivation>>,
}

impl Derived {
    /// Which constants of so many are not in the file, if these are the ones that each variant has.
    pub(super) fn left_out<'a>(
        &self,
        count: usize,
        held: impl Iterator<Item = &'a Vec<u32>>,
    ) -> Vec<bool> {
        let mut made = vec![None; count];
        for (held, derivations) in held.zip(&self.variants) {
            let derived = outputs(derivations);
            for (blob, at) in (0..).zip(held) {
                if let Some(made) = made.get_mut(*at as usize) {
                    *made = Some(made.unwrap_or(true) && derived.contains(&blob));
                }
            }
        }
        made.into_iter().map(|m| m.unwrap_or(false)).collect()
    }
}

/// What files up to [`NO_ZEROS_VERSION`] do not have; it stands behind [`Derived`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Zeros {
    /// Of each dimension the inputs whose padding is zero.
    dims: Vec<Vec<usize>>,
}

impl Zeros {
    pub(super) fn of(dims: &[Dim]) -> Zeros {
        let zeros = |d: &Dim| d.padding.as_ref().map_or(Vec::new(), |p| p.zeros.clone());
        Zeros {
            dims: dims.iter().map(zeros).collect(),
        }
    }

    /// The dimensions with their zeros; none if these are of others.
    pub(super) fn put(self, mut dims: Vec<Dim>) -> Option<Vec<Dim>> {
        if self.dims.len() != dims.len() {
            return None;
        }
        for (dim, zeros) in dims.iter_mut().zip(self.dims) {
            match &mut dim.padding {
                Some(padding) => padding.zeros = zeros,
                None if zeros.is_empty() => {}
                None => return None,
            }
        }
        Some(dims)
    }
}

/// What files up to [`NO_SETTINGS_VERSION`] do not have; it stands behind [`Zeros`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Settings {
    /// Of each variant.
    pub(super) variants: Vec<BTreeMap<String, String>>,
}

/// What stands behind [`Stored`](super::Stored) in a file.
#[derive(Clone, Debug)]
pub(super) struct Behind {
    pub(super) newer: Newer,
    pub(super) later: LaterCalls,
    pub(super) groups: Groups,
    pub(super) derived: Derived,
    pub(super) zeros: Zeros,
    pub(super) settings: Settings,
}

/// The calls of an alternative behind its first one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CallsOfAlternative {
    pub(super) step: u32,
    pub(super) alternative: u32,
    pub(super) calls: Vec<Call>,
}

impl CallsOfAlternative {
    pub(super) fn all(manifest: &Manifest) -> Vec<CallsOfAlternative> {
        let mut found = Vec::new();
        for (step, of) in (0..).zip(&manifest.steps) {
            for (alternative, a) in (0..).zip(&of.alternatives) {
                if a.calls.len() > 1 {
                    found.push(CallsOfAlternative {
                        step,
                        alternative,
                        calls: a.calls[1..].to_vec(),
                    });
                }
            }
        }
        found
    }

    /// Puts the calls back; none if there is no such alternative.
    pub(super) fn put(self, manifest: &mut Manifest) -> Option<()> {
        let step = manifest.steps.get_mut(self.step as usize)?;
        let alternative = step.alternatives.get_mut(self.alternative as usize)?;
        alternative.calls.extend(self.calls);
        Some(())
    }
}

/// What stands behind [`Stored`](super::Stored) in a file of this version, which has so many kernels, variants
/// and dimensions.
pub(super) fn behind_stored(
    version: u32,
    [kernels, variants, dims]: [usize; 3],
    bytes: &[u8],
) -> postcard::Result<Behind> {
    let (newer, bytes) = match version {
        OLDEST_VERSION => {
            let newer = Newer {
                algorithms: vec![String::new(); kernels],
                states: vec![vec![]; variants],
            };
            (newer, bytes)
        }
        _ => postcard::take_from_bytes(bytes)?,
    };
    let (later, bytes) = match version <= SINGLE_CALLS_VERSION {
        true => {
            let variants = vec![vec![]; variants];
            (LaterCalls { variants }, bytes)
        }
        false => postcard::take_from_bytes(bytes)?,
    };
    let (groups, bytes) = match version <= NO_GROUPS_VERSION {
        true => {
            let groups = Groups {
                variants: vec![vec![]; variants],
                threads: vec![0; variants],
            };
            (groups, bytes)
        }
        false => postcard::take_from_bytes(bytes)?,
    };
    let (derived, bytes) = match version <= ALL_CONSTANTS_VERSION {
        true => {
            let variants = vec![vec![]; variants];
            (Derived { variants }, bytes)
        }
        false => postcard::take_from_bytes(bytes)?,
    };
    let (zeros, bytes) = match version <= NO_ZEROS_VERSION {
        true => {
            let dims = vec![vec![]; dims];
            (Zeros { dims }, bytes)
        }
        false => postcard::take_from_bytes(bytes)?,
    };
    let settings = match version <= NO_SETTINGS_VERSION {
        true => Settings {
            variants: vec![BTreeMap::new(); variants],
        },
        false => postcard::from_bytes(bytes)?,
    };
    Ok(Behind {
        newer,
        later,
        groups,
        derived,
        zeros,
        settings,
    })
}
