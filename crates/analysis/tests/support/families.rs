//! Small programs of every family of operators, with extents that vectors and tiles do not divide.

use crate::support::{convolution, operator, planned, product};
use graph::Model;
use graph::ops::{Binary, Conv, Expand, Op, Pad, PadMode, Reduce, ReduceKind, Slice, Unary};
use ir::{Program, Target};
use tensor::{DType, Fill, fill_tensor};

/// A family: its name, and what gives its programs.
pub struct Family {
    pub name: &'static str,
    pub operators: &'static [&'static str],
    /// Programs that no built-in operator has.
    pub others: fn(&Target) -> Vec<Program>,
}

fn none(_: &Target) -> Vec<Program> {
    vec![]
}

const fn built_in(name: &'static str, operators: &'static [&'static str]) -> Family {
    Family {
        name,
        operators,
        others: none,
    }
}

const fn with(
    name: &'static str,
    operators: &'static [&'static str],
    others: fn(&Target) -> Vec<Program>,
) -> Family {
    Family {
        name,
        operators,
        others,
    }
}

/// Every built-in operator is in one (a test holds that), and what else models are made of.
pub const FAMILIES: &[Family] = &[
    with(
        "product",
        &[
            "op:matmul(m=37,n=41,k=43)",
            "op:dense(m=1,n=50,k=70)",
            "op:dense(m=16,n=40,k=50,bias=yes,activation=gelu)",
        ],
        |_| vec![product(30, 48, 35)],
    ),
    built_in("batched product", &["op:batch_matmul(b=3,m=13,n=19,k=17)"]),
    built_in(
        "contraction",
        &[
            "op:contract(spec=abcd,cbe->aed,a=2,b=3,c=7,d=11,e=13)",
            "op:contract(spec=bqhd,bkhd->bhqk,b=1,q=11,k=9,h=3,d=13)",
            "op:correlation(c=13,h=5,w=6)",
            "op:capsule_conv2d(c=3,h=5,w=5,k=3)",
        ],
    ),
    built_in("conv1d", &["op:conv1d(c=7,w=31,k=9,stride=2)"]),
    with(
        "conv2d",
        &[
            "op:conv2d(c=8,h=14,w=14,k=8)",
            "op:conv2d(c=5,h=9,w=9,k=7,bias=yes,activation=relu)",
            "op:conv2d(c=13,h=7,w=7,k=11,r=1,s=1)",
            "op:conv2d(c=3,h=23,w=23,k=9,r=7,s=7,stride=2)",
            "op:conv2d(c=5,h=11,w=11,k=6,dilation=2,pad=2,layout=nchw)",
        ],
        |_| vec![convolution(8, 8, 16)],
    ),
    built_in(
        "conv3d",
        &[
            "op:conv3d(c=3,d=3,h=7,w=7,k=5)",
            "op:conv3d(c=3,d=4,h=11,w=11,k=5,q=1,stride=2,pad=0)",
        ],
    ),
    built_in(
        "grouped conv2d",
        &[
            "op:grouped_conv2d(c=12,h=9,w=9,k=12,groups=3)",
            "op:grouped_conv2d(c=5,h=9,w=9,k=10,groups=5)",
        ],
    ),
    built_in(
        "depthwise conv2d",
        &[
            "op:depthwise_conv2d(c=8,h=14,w=14)",
            "op:depthwise_conv2d(c=9,h=11,w=11,r=5,s=5,stride=2)",
        ],
    ),
    built_in(
        "transposed convolution",
        &[
            "op:conv1d_transpose(c=5,w=13,k=6,stride=2)",
            "op:conv2d_transpose(c=8,h=7,w=7,k=8)",
            "op:conv2d_transpose(c=5,h=5,w=5,k=6,r=3,s=3,stride=2,output_pad=1)",
            "op:conv3d_transpose(c=3,d=3,h=4,w=4,k=5,stride=2)",
        ],
    ),
    built_in(
        "maximum pooling",
        &[
            "op:max_pool2d(c=8,h=14,w=14)",
            "op:max_pool2d(c=5,h=13,w=13,stride=1)",
            "op:max_pool3d(c=5,d=3,h=9,w=9)",
        ],
    ),
    built_in(
        "mean pooling",
        &[
            "op:avg_pool2d(c=8,h=14,w=14)",
            "op:avg_pool2d(c=5,h=13,w=13,r=2,s=2)",
            "op:global_avg_pool2d(c=21,h=7,w=7)",
        ],
    ),
    built_in(
        "resize",
        &[
            "op:resize2d(c=5,h=7,w=9,to_h=13,to_w=15)",
            "op:resize2d(c=5,h=7,w=9,to_h=13,to_w=15,mode=nearest)",
            "op:resize2d(c=3,h=7,w=5,to_h=13,to_w=11,mode=cubic)",
        ],
    ),
    built_in(
        "softmax",
        &[
            "op:softmax(rows=12,cols=50)",
            "op:softmax(rows=3,cols=17,inner=11)",
            "op:log_sum_exp(rows=13,cols=37)",
        ],
    ),
    built_in(
        "normalisation",
        &[
            "op:layer_norm(rows=12,cols=50)",
            "op:group_norm(c=12,h=7,w=7,groups=3)",
        ],
    ),
    built_in("attention", &["op:attention(heads=2,n=19,d=13)"]),
    built_in("recurrent cell", &["op:lstm_cell(n=3,x=19,hidden=13)"]),
    built_in(
        "transpose",
        &[
            "op:transpose(rows=30,cols=50)",
            "op:transpose(c=7,rows=11,cols=13,perm=102)",
            "op:transpose(n=1,c=3,rows=10,cols=12,perm=0231)",
        ],
    ),
    with(
        "movement",
        &[
            "op:concat(c=5,h=7,w=7)",
            "op:gather(table=20,rows=13,cols=37)",
        ],
        |target| {
            let slice = Slice {
                starts: vec![1, 2],
                steps: vec![2, 3],
                sizes: vec![9, 13],
            };
            let pads = vec![(1, 2), (3, 4)];
            let pad = |mode| {
                Op::Pad(Pad {
                    mode,
                    pads: pads.clone(),
                })
            };
            let expand = Op::Expand(Expand {
                shape: vec![13, 37],
            });
            [
                planned(
                    &single(Op::Slice(slice), &[(DType::F32, &[20, 43])]),
                    target,
                ),
                planned(
                    &single(pad(PadMode::Constant(0.0)), &[(DType::F32, &[9, 17])]),
                    target,
                ),
                planned(
                    &single(pad(PadMode::Reflect), &[(DType::F32, &[9, 17])]),
                    target,
                ),
                planned(&single(expand, &[(DType::F32, &[13, 1])]), target),
            ]
            .concat()
        },
    ),
    with(
        "element-wise",
        &["op:add(rows=13,cols=37,activation=sigmoid)"],
        |target| {
            let f32 = |op| planned(&single(op, &[(DType::F32, &[13, 37])]), target);
            let two: &[(DType, &[usize])] = &[(DType::F32, &[13, 37]), (DType::F32, &[13, 1])];
            let where_: &[(DType, &[usize])] = &[
                (DType::Bool, &[13, 37]),
                (DType::F32, &[13, 37]),
                (DType::F32, &[1, 37]),
            ];
            [
                f32(Op::Unary(Unary::Exp)),
                f32(Op::Unary(Unary::Log)),
                f32(Op::Unary(Unary::Tanh)),
                f32(Op::Unary(Unary::HardSwish)),
                f32(Op::Cast(DType::I32)),
                planned(&single(Op::Binary(Binary::Div), two), target),
                planned(&single(Op::Where, where_), target),
            ]
            .concat()
        },
    ),
    with("reduction", &["op:reduce_sum(rows=13,cols=37)"], |target| {
        let over = |kind, axes: &[usize]| {
            let op = Op::Reduce(Reduce {
                kind,
                axes: axes.to_vec(),
                keepdims: false,
            });
            planned(&single(op, &[(DType::F32, &[13, 7, 11])]), target)
        };
        [
            over(ReduceKind::Max, &[2]),
            over(ReduceKind::Mean, &[0]),
            over(ReduceKind::Sum, &[0, 2]),
        ]
        .concat()
    }),
    built_in(
        "scan and choice",
        &[
            "op:cumulative_sum(outer=3,n=11,inner=7)",
            "op:cumulative_sum(outer=5,n=23,inner=1)",
            "op:scatter_add(table=9,rows=17,cols=5)",
            "op:top_k(rows=3,cols=37,k=4)",
            "op:suppress(classes=1,boxes=40,most=5)",
        ],
    ),
    with(
        "int8",
        &[
            "op:conv2d(c=8,h=9,w=9,k=12,dtype=i8)",
            "op:dense(m=5,n=37,k=41,dtype=i8)",
        ],
        |target| {
            let bytes: &[(DType, &[usize])] = &[(DType::U8, &[7, 23]), (DType::I8, &[23, 19])];
            planned(&single(Op::MatMulInteger, bytes), target)
        },
    ),
    with("f16", &[], |target| halves(DType::F16, target)),
    with("bf16", &[], |target| halves(DType::BF16, target)),
];

/// A product, a convolution and a sum of 16-bit numbers.
fn halves(dtype: DType, target: &Target) -> Vec<Program> {
    let product: &[(DType, &[usize])] = &[(dtype, &[7, 23]), (dtype, &[23, 19])];
    let sum: &[(DType, &[usize])] = &[(dtype, &[13, 37]), (dtype, &[13, 37])];
    let mut conv = Model::new("conv2d", 0);
    let x = conv.add_input("x", dtype, &[1, 5, 9, 9]);
    let w = fill_tensor(dtype, &[6, 5, 3, 3], Fill::Normal { std: 1.0 }, 1);
    let w = conv.add_constant("w", w);
    let y = conv.add("conv2d", Op::Conv(Conv::unit(2)), &[x, w]);
    conv.add_output(y.expect("a convolution"));
    [
        planned(&single(Op::MatMul, product), target),
        planned(&conv, target),
        planned(&single(Op::Binary(Binary::Add), sum), target),
    ]
    .concat()
}

/// A model of one operator.
fn single(op: Op, inputs: &[(DType, &[usize])]) -> Model {
    let mut model = Model::new("single", 0);
    let inputs: Vec<_> = inputs
        .iter()
        .enumerate()
        .map(|(i, (dtype, shape))| model.add_input(&format!("x{i}"), *dtype, shape))
        .collect();
    let y = model.add("y", op, &inputs).expect("its operands fit");
    model.add_output(y);
    model
}

impl Family {
    pub fn programs(&self, target: &Target) -> Vec<Program> {
        let built_in = self.operators.iter().flat_map(|o| operator(o, target));
        built_in.chain((self.others)(target)).collect()
    }
}
