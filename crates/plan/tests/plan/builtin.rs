//! Built-in models and operators: that they plan, what kernels they need, and
//! that their plans compute what the reference does.

use crate::judge::{judge, planned};
use graph::Model;
use graph::builtin::{MODELS, OPERATORS, builtin};
use onnx::export;
use onnx::{ImportOptions, import_bytes};
use plan::{LayoutPolicy, Plan};

/// (name, learned parameters, gigaflops of convolutions and matrix products,
/// layout conversions).
const FACTS: [(&str, usize, f64, usize); 11] = [
    ("alexnet", 61_100_840, 1.43, 1),
    ("vgg16", 138_357_544, 30.9, 1),
    ("resnet18", 11_689_512, 3.63, 0),
    ("resnet34", 21_797_672, 7.33, 0),
    ("resnet50", 25_557_032, 8.2, 0),
    ("vgg16-cifar", 15_245_130, 0.627, 0),
    ("resnet34-cifar", 21_282_122, 2.32, 0),
    ("squeezenet1.1", 1_235_496, 0.7, 0),
    ("mobilenet-v1", 4_231_976, 1.14, 0),
    ("mobilenet-v2", 3_504_872, 0.6, 0),
    ("bert-base", 109_482_240, 22.3, 0),
];

/// Trained numbers, as frameworks count them: without running statistics and,
/// of position embeddings, only the rows that are used.
fn parameters(model: &Model) -> usize {
    let trained = |name: &str| {
        let statistic = name.contains(".mean") || name.contains(".variance");
        !statistic && !name.contains("mask") && !name.contains("root")
    };
    let constants = model.constants();
    constants
        .filter(|(v, _)| trained(model[*v].name()))
        .map(|(_, t)| t.len())
        .sum()
}

fn product_flops(plan: &Plan) -> f64 {
    let product = |op: &str| op.contains("conv") || op.contains("matmul") || op == "dense";
    let tasks = plan.steps.iter().map(|s| &plan.tasks[s.task]);
    tasks.filter(|t| product(&t.op)).map(|t| t.flops).sum()
}

#[test]
fn architectures_are_the_published_ones() {
    assert_eq!(MODELS.len(), FACTS.len());
    for (info, (name, expected, gigaflops, conversions)) in MODELS.iter().zip(FACTS) {
        assert_eq!(info.name, name);
        let model = builtin(name, 1).unwrap();
        model.verify().unwrap();
        // The table of 512 positions holds the 128 that are used.
        let positions = if name == "bert-base" {
            (512 - 128) * 768
        } else {
            0
        };
        assert_eq!(parameters(&model) + positions, expected, "{name}");
        let plan = planned(&model, LayoutPolicy::Blocked);
        let flops = product_flops(&plan) / 1e9;
        assert!((flops / gigaflops - 1.0).abs() < 0.02, "{name}: {flops}");
        assert_eq!(plan.conversions, conversions, "{name}");
    }
}

const SPECS: [&str; 52] = [
    "op:conv1d(c=4,k=6,w=9)",
    "op:conv2d(c=8,k=8,h=5,w=6)",
    "op:conv2d(c=6,k=5,h=5,w=6,stride=2,dilation=2,pad=2,bias=yes,activation=relu,layout=nchw)",
    "op:conv2d(c=6,k=5,h=5,w=6,layout=nhwc,activation=sigmoid)",
    "op:conv3d(c=3,k=4,d=3,h=4,w=4)",
    "op:grouped_conv2d(c=8,k=16,groups=4,h=5,w=5)",
    "op:depthwise_conv2d(c=10,h=6,w=6,stride=2,bias=yes)",
    "op:conv1d_transpose(c=4,k=4,w=6,stride=2)",
    "op:conv2d_transpose(c=4,k=6,h=4,w=3,stride=2,groups=2,output_pad=1)",
    "op:conv3d_transpose(c=2,k=2,d=2,h=3,w=2)",
    "op:matmul(m=5,n=6,k=7,activation=gelu)",
    "op:batch_matmul(b=2,m=5,n=6,k=7)",
    "op:dense(m=3,n=8,k=4,bias=yes,activation=relu)",
    "op:contract(a=2,b=3,c=4,d=5,e=6)",
    "op:contract(spec=xk,ykz->zyx,k=4,x=3,y=2,z=5)",
    "op:correlation(n=2,c=3,h=2,w=3)",
    "op:capsule_conv2d(n=2,c=3,h=4,w=5,k=2,stride=2)",
    "op:attention(heads=2,n=5,d=4)",
    "op:lstm_cell(n=2,x=3,hidden=5)",
    "op:softmax(rows=3,cols=5)",
    "op:softmax(rows=2,cols=3,inner=4)",
    "op:group_norm(n=2,c=6,h=3,w=4,groups=3)",
    "op:log_sum_exp(rows=3,cols=5)",
    "op:max_pool3d(c=4,d=4,h=5,w=6)",
    "op:resize2d(c=4,h=5,w=6,to_h=10,to_w=9)",
    "op:resize2d(c=4,h=5,w=6,to_h=3,to_w=2,mode=cubic)",
    "op:resize2d(c=4,h=5,w=6,to_h=7,to_w=12,mode=nearest,coordinates=align_corners)",
    "op:transpose(n=2,c=3,rows=4,cols=5,perm=0312)",
    "op:layer_norm(rows=3,cols=5)",
    "op:max_pool2d(c=4,h=6,w=6)",
    "op:avg_pool2d(c=4,h=6,w=6)",
    "op:global_avg_pool2d(c=4,h=3,w=3)",
    "op:reduce_sum(rows=3,cols=4)",
    "op:transpose(rows=3,cols=4)",
    "op:add(rows=3,cols=4,activation=relu)",
    "op:concat(c=4,h=2,w=2)",
    "op:gather(table=4,rows=3,cols=5)",
    "op:scatter_add(table=4,rows=7,cols=5)",
    "op:cumulative_sum(outer=2,n=5,inner=3)",
    "op:top_k(rows=3,cols=40,k=4)",
    "op:suppress(classes=2,boxes=20,most=4)",
    "op: conv2d ( c = 3 , k = 4 , h = 4 , w = 4 )",
    "op:conv2d(c=8,k=4,h=4,w=4,pad=0,r=1,s=1)",
    "op:depthwise_conv2d(c=8,h=6,w=6,layout=nchw)",
    "op:grouped_conv2d(c=8,k=8,groups=8,h=5,w=5,layout=blocked)",
    "op:conv1d(c=4,k=6,w=9,layout=nchw)",
    "op:conv1d(c=4,k=6,w=9,layout=nhwc)",
    "op:conv3d(c=3,k=4,d=3,h=4,w=5,layout=nhwc,bias=yes)",
    "op:conv1d_transpose(c=4,k=4,w=6,stride=2,layout=nhwc)",
    "op:conv2d_transpose(c=4,k=6,h=4,w=3,stride=2,layout=nchw)",
    "op:conv2d_transpose(c=4,k=6,h=4,w=3,stride=2,layout=nhwc,activation=relu)",
    "op:conv3d_transpose(c=4,k=4,d=2,h=3,w=2,stride=2)",
];

#[test]
fn operators_by_specification() {
    for spec in SPECS {
        let model = builtin(spec, 7).unwrap();
        judge(&model, LayoutPolicy::of_builtin(spec).unwrap());
        if spec.starts_with("op:suppress") {
            // ONNX's operator has as many results as boxes are chosen.
            assert!(export(&model).is_err());
            continue;
        }
        let back = import_bytes(&export(&model).unwrap(), None, &ImportOptions::default()).unwrap();
        assert_eq!(back.nodes().len() > 0, model.nodes().len() > 0);
    }
    for operator in OPERATORS {
        let named =
            |s: &&str| s[3..].trim_start().split('(').next().unwrap().trim() == operator.name;
        assert!(SPECS.iter().any(named), "{} is not tested", operator.name);
        // The defaults fit together.
        planned(
            &builtin(&format!("op:{}", operator.name), 1).unwrap(),
            LayoutPolicy::Blocked,
        );
    }
}
