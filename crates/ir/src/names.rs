//! Names of blocks and axes in the programs of tasks.
//!
//! Whoever writes the program of a task names its blocks and axes with these
//! constants, and whoever schedules it recognises them by the same constants.
//! The loop along an axis is called `BLOCK.AXIS`. A changed name changes the keys
//! of tasks and makes stored traces illegal.

use std::fmt;

macro_rules! name {
    ($($(#[$doc:meta])* $name:ident),*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(&'static str);

        impl $name {
            pub const fn as_str(self) -> &'static str {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.into()
            }
        }
    )* };
}
name!(
    /// A block, and the buffer that it writes.
    BlockName,
    /// An iteration variable of a block.
    AxisName
);

/// What the task is about: its sum or other reduction, or its only block.
pub const MAIN: BlockName = BlockName("main");
/// What follows `main`, one element for each of its own.
pub const OUT: BlockName = BlockName("out");
/// Of attention, the product that the weights are made of.
pub const SCORES: BlockName = BlockName("scores");
/// What follows `scores` before their softmax, one element for each of them.
pub const LOGITS: BlockName = BlockName("logits");
/// Of attention by tiles, copies of both right operands, with zeros that fill up tiles.
pub const KEYS: BlockName = BlockName("keys");
pub const VALUES: BlockName = BlockName("values");

/// Of a product with weights in blocks of terms: sums of products of a block, and the sums of
/// its terms alone.
pub const BLOCK_SUMS: BlockName = BlockName("block_sums");
pub const TERM_SUMS: BlockName = BlockName("term_sums");

/// Axes of images, and of the sums of convolutions and windows.
pub mod image {
    use super::AxisName;

    pub const BATCH: AxisName = AxisName("n");
    /// Of a plain image that is computed.
    pub const MAP: AxisName = AxisName("k");
    /// Of a plain image that is computed: groups, of several maps each.
    pub const GROUP: AxisName = AxisName("g");
    /// Of a blocked image that is computed: its blocks of channels, and the
    /// channels of a block.
    pub const MAP_BLOCK: AxisName = AxisName("ko");
    pub const MAP_LANE: AxisName = AxisName("ki");
    pub const DEPTH: AxisName = AxisName("z");
    pub const ROW: AxisName = AxisName("y");
    pub const COLUMN: AxisName = AxisName("x");
    /// Of a plain image that is summed over.
    pub const CHANNEL: AxisName = AxisName("c");
    /// Of a blocked image that is summed over, or that is computed channel by channel.
    pub const CHANNEL_BLOCK: AxisName = AxisName("co");
    pub const CHANNEL_LANE: AxisName = AxisName("ci");
    pub const TAP_DEPTH: AxisName = AxisName("q");
    pub const TAP_ROW: AxisName = AxisName("r");
    pub const TAP_COLUMN: AxisName = AxisName("s");

    /// Of images with fewer spatial axes, the last ones; so of taps.
    pub const SPATIAL: [AxisName; 3] = [DEPTH, ROW, COLUMN];
    pub const TAPS: [AxisName; 3] = [TAP_DEPTH, TAP_ROW, TAP_COLUMN];

    /// Of a transposed convolution, for each spatial axis that it steps along: an output
    /// position is its stride times the base, plus the phase; of the taps, one a stride
    /// contributes to a phase, and the steps count these.
    pub const BASES: [AxisName; 3] = [AxisName("z0"), AxisName("y0"), AxisName("x0")];
    pub const PHASES: [AxisName; 3] = [AxisName("pz"), AxisName("py"), AxisName("px")];
    pub const TAP_STEPS: [AxisName; 3] = [AxisName("q0"), AxisName("r0"), AxisName("s0")];

    /// Of a blocked image of two spatial axes, outermost first.
    pub const BLOCKED: [AxisName; 5] = [BATCH, CHANNEL_BLOCK, ROW, COLUMN, CHANNEL_LANE];
    /// Of one that is computed from all channels of another one.
    pub const BLOCKED_MAPS: [AxisName; 5] = [BATCH, MAP_BLOCK, ROW, COLUMN, MAP_LANE];

    /// As [`BLOCKED`], of an image of one to three spatial axes.
    pub fn blocked(spatial: usize) -> Vec<AxisName> {
        around(spatial, [BATCH, CHANNEL_BLOCK], CHANNEL_LANE)
    }

    /// As [`BLOCKED_MAPS`], of an image of one to three spatial axes.
    pub fn blocked_maps(spatial: usize) -> Vec<AxisName> {
        around(spatial, [BATCH, MAP_BLOCK], MAP_LANE)
    }

    fn around(spatial: usize, outer: [AxisName; 2], lane: AxisName) -> Vec<AxisName> {
        let spatial = &SPATIAL[SPATIAL.len() - spatial..];
        [&outer[..], spatial, &[lane]].concat()
    }
}

/// Axes of matrix products.
pub mod product {
    use super::AxisName;

    pub const ROW: AxisName = AxisName("m");
    pub const COLUMN: AxisName = AxisName("n");
    pub const TERM: AxisName = AxisName("k");
    /// Of weights in blocks: the blocks of terms; the bytes of one, and the parts of a byte.
    pub const BLOCK: AxisName = AxisName("q");
    pub const BYTE: AxisName = AxisName("j");
    pub const PART: AxisName = AxisName("h");
}
