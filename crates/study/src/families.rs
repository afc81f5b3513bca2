//! Operators that stand for the families of the paper's Table 2, as far as there
//! are built-in ones.
//!
//! Owns names and sizes: of a kind that models have, and a good candidate of
//! which takes some milliseconds at most on one thread.

/// One operator for many.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    pub name: &'static str,
    /// A specification; the task of its plan that has most work stands for it.
    pub operator: &'static str,
}

const fn family(name: &'static str, operator: &'static str) -> Family {
    Family { name, operator }
}

/// All of them; some have small spaces.
pub const FAMILIES: &[Family] = &[
    family("conv2d 3x3", "op:conv2d(c=64,h=56,w=56,k=64)"),
    family(
        "conv2d 1x1",
        "op:conv2d(c=256,h=28,w=28,k=256,r=1,s=1,pad=0)",
    ),
    family(
        "conv2d 7x7",
        "op:conv2d(c=3,h=112,w=112,k=64,r=7,s=7,stride=2,pad=3)",
    ),
    family(
        "conv2d dilated",
        "op:conv2d(c=64,h=28,w=28,k=64,dilation=2,pad=2)",
    ),
    family("conv2d int8", "op:conv2d(c=64,h=56,w=56,k=64,dtype=i8)"),
    family(
        "grouped conv2d",
        "op:grouped_conv2d(c=128,h=28,w=28,k=128,groups=4)",
    ),
    family("depthwise conv2d", "op:depthwise_conv2d(c=64,h=112,w=112)"),
    family("dense", "op:dense(m=128,n=768,k=768)"),
    family("dense, one row", "op:dense(m=1,n=1000,k=2048)"),
    family("dense int8", "op:dense(m=128,n=768,k=768,dtype=i8)"),
    family("matmul", "op:matmul(m=256,n=256,k=256)"),
    family("batch matmul", "op:batch_matmul(b=12,m=128,n=128,k=64)"),
    family("transpose", "op:transpose(rows=512,cols=512)"),
    family("conv1d", "op:conv1d(c=64,w=1024,k=64)"),
    family("conv3d", "op:conv3d(c=16,d=4,h=14,w=14,k=16)"),
    family("conv1d transposed", "op:conv1d_transpose(c=64,w=256,k=64)"),
    family(
        "conv2d transposed",
        "op:conv2d_transpose(c=32,h=14,w=14,k=32)",
    ),
    family(
        "conv3d transposed",
        "op:conv3d_transpose(c=16,d=4,h=7,w=7,k=16)",
    ),
    family("softmax", "op:softmax(rows=1536,cols=128)"),
    family("layer norm", "op:layer_norm(rows=128,cols=768)"),
    family("max pool", "op:max_pool2d(c=64,h=56,w=56)"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_family_can_be_loaded_and_has_its_name_alone() {
        let mut names = BTreeSet::new();
        for f in FAMILIES {
            let source = tune::source::Source::builtin(f.operator);
            assert!(source.is_ok(), "{}: {:?}", f.name, source.err());
            assert!(names.insert(f.name), "{}", f.name);
        }
        assert!(names.len() >= 12);
    }
}
