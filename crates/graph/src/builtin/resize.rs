//! The built-in operator that resizes images.

use super::net::Net;
use super::operators::input;
use super::spec::Arguments;
use crate::model::{ModelError, ValueId};
use crate::ops::{Filter, Op, Resize, Rounding, Sampling, Scale};

/// What `mode` may be.
pub(super) const MODES: &[&str] = &["nearest", "linear", "cubic"];
/// What `coordinates` may be.
pub(super) const COORDINATES: &[&str] = &["half_pixel", "align_corners", "asymmetric"];

pub(super) fn resize2d(net: &mut Net, a: &Arguments) -> Result<ValueId, ModelError> {
    let x = input(net, &["n", "c", "h", "w"].map(|d| a.get(d)));
    let sampling = |from: &str, to: &str| {
        let (extent, size) = (a.get(from), a.get(to));
        let scale = Scale::between(extent, size);
        let position = match COORDINATES[a.get("coordinates")] {
            "align_corners" => scale.align_corners(extent),
            "asymmetric" => scale.asymmetric(),
            _ => scale.half_pixel(),
        };
        Some(Sampling {
            size,
            position,
            scale: scale.value(),
        })
    };
    let filter = match MODES[a.get("mode")] {
        "nearest" => Filter::Nearest(Rounding::HalfDown),
        "cubic" => Filter::Cubic { a: -0.75 },
        _ => Filter::Linear,
    };
    let resize = Resize {
        filter,
        axes: vec![None, None, sampling("h", "to_h"), sampling("w", "to_w")],
        antialias: false,
        exclude_outside: false,
        beyond: None,
    };
    net.try_add(Op::Resize(resize), &[x])
}
