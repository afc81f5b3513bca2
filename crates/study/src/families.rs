//! Operators that stand for the families of the paper's Table 2, and for the layers of ConvNeXt that it measures
//! one by one.
//!
//! Owns names and sizes: of a kind that models have, and a good candidate of
//! which takes some milliseconds at most on one thread.

/// One operator for many.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    pub name: &'static str,
    /// A specification.
    pub operator: &'static str,
    pub tasks: Tasks,
}

/// Which tasks of the operator's plan stand for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tasks {
    /// The one that has most work.
    Main,
    /// All of them: the operator is a small graph, or its tensors are turned around the work.
    All,
}

const fn family(name: &'static str, operator: &'static str) -> Family {
    Family {
        name,
        operator,
        tasks: Tasks::Main,
    }
}

const fn whole(name: &'static str, operator: &'static str) -> Family {
    Family {
        name,
        operator,
        tasks: Tasks::All,
    }
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
    // Images with channels last. Kernels read channels first, so turning the image and the result is part of the
    // operator. Sizes are those of the families above, the depthwise one is of MobileNet (Howard et al. 2017),
    // which TensorFlow has so.
    whole("conv1d NWC", "op:conv1d(c=64,w=1024,k=64,layout=nhwc)"),
    whole("conv2d NHWC", "op:conv2d(c=64,h=56,w=56,k=64,layout=nhwc)"),
    whole(
        "conv3d NDHWC",
        "op:conv3d(c=16,d=4,h=14,w=14,k=16,layout=nhwc)",
    ),
    whole(
        "depthwise conv2d NHWC",
        "op:depthwise_conv2d(c=64,h=112,w=112,layout=nhwc)",
    ),
    // RAFT-small (Teed and Deng 2020, section 3.2): features of 128 channels at an eighth of 256 x 320.
    family("correlation", "op:correlation(c=128,h=32,w=40)"),
    // The medium language model of Zaremba et al. 2014: 650 units, batches of 20.
    whole("LSTM cell", "op:lstm_cell(n=20,x=650,hidden=650)"),
    // A layer of BERT-base (Devlin et al. 2019).
    whole("self-attention", "op:attention(heads=12,n=128,d=64)"),
    // ConvNeXt-T (Liu et al. 2022, section 2) on 224 x 224: its stem, a block of its third stage, which has half of
    // all blocks, and the step down to that stage. The paper also takes batches of 2 and 4.
    family(
        "ConvNeXt stem 4x4",
        "op:conv2d(c=3,h=224,w=224,k=96,r=4,s=4,stride=4,pad=0,bias=yes)",
    ),
    family(
        "ConvNeXt step down 2x2",
        "op:conv2d(c=192,h=28,w=28,k=384,r=2,s=2,stride=2,pad=0,bias=yes)",
    ),
    family(
        "ConvNeXt depthwise 7x7",
        "op:depthwise_conv2d(c=384,h=14,w=14,r=7,s=7,bias=yes)",
    ),
    family(
        "ConvNeXt depthwise 7x7, batch 2",
        "op:depthwise_conv2d(n=2,c=384,h=14,w=14,r=7,s=7,bias=yes)",
    ),
    family(
        "ConvNeXt depthwise 7x7, batch 4",
        "op:depthwise_conv2d(n=4,c=384,h=14,w=14,r=7,s=7,bias=yes)",
    ),
    family("ConvNeXt layer norm", "op:layer_norm(rows=196,cols=384)"),
    family(
        "ConvNeXt pointwise up",
        "op:dense(m=196,n=1536,k=384,bias=yes,activation=gelu)",
    ),
    family(
        "ConvNeXt pointwise down",
        "op:dense(m=196,n=384,k=1536,bias=yes)",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use ir::{CpuTarget, Isa, Target};
    use search::Accuracy;
    use std::collections::BTreeSet;

    #[test]
    fn every_family_has_the_tasks_that_stand_for_it_and_its_name_alone() {
        let target = Target::Cpu(CpuTarget::generic(Isa::X86Avx2));
        let mut names = BTreeSet::new();
        for f in FAMILIES {
            let source = tune::source::Source::builtin(f.operator).unwrap();
            let plan = source.plan(&target, Accuracy::Relaxed, &[]).unwrap();
            let tasks = plan.tasks.len();
            match f.tasks {
                Tasks::Main => assert!(tasks >= 1, "{}", f.name),
                // With one task there would be nothing to sum.
                Tasks::All => assert!(tasks > 1, "{}", f.name),
            }
            assert!(names.insert(f.name), "{}", f.name);
        }
    }

    /// Rows of the paper's Table 2 that an operator here can be, and the layers of a block of ConvNeXt.
    #[test]
    fn the_operators_of_the_paper_are_there() {
        let there = |operator: &str, has: &str| {
            let start = format!("op:{operator}(");
            let mut all = FAMILIES.iter().map(|f| f.operator);
            all.any(|o| o.starts_with(&start) && o.contains(has))
        };
        for (operator, has) in [
            ("conv1d", "k=64)"),
            ("conv1d", "layout=nhwc"),
            ("conv2d", "dtype=i8"),
            ("conv2d", "layout=nhwc"),
            ("conv3d", "k=16)"),
            ("conv3d", "layout=nhwc"),
            ("correlation", ""),
            ("depthwise_conv2d", ""),
            ("dense", ""),
            ("dense", "dtype=i8"),
            ("grouped_conv2d", ""),
            ("matmul", ""),
            ("conv1d_transpose", ""),
            ("conv3d_transpose", ""),
            ("lstm_cell", ""),
            ("attention", ""),
            ("depthwise_conv2d", "r=7,s=7"),
            ("dense", "activation=gelu"),
            ("layer_norm", "rows=196,cols=384"),
        ] {
            assert!(there(operator, has), "no family has {operator} with {has}");
        }
    }
}
