//! Writes a built-in model as ONNX, with random inputs and the reference's
//! outputs as `.npy` beside it, for comparison with other programs:
//! `export_builtin MODEL FOLDER [SEED]`.

use graph::builtin::builtin;
use graph::{Keep, evaluate};
use onnx::export;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use tensor::{Fill, fill_tensor, write_npy_file};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, folder, rest @ ..] = &args[..] else {
        return Err("usage: export_builtin MODEL FOLDER [SEED]".into());
    };
    let seed = rest.first().map_or(Ok(0), |s| s.parse())?;
    let folder = Path::new(folder);
    std::fs::create_dir_all(folder)?;
    let model = builtin(name, seed)?;
    std::fs::write(folder.join("model.onnx"), export(&model)?)?;
    let mut inputs = Vec::new();
    for (i, v) in model.inputs().iter().enumerate() {
        let value = &model[*v];
        let fill = if value.dtype().is_float() {
            Fill::Normal { std: 1.0 }
        } else {
            Fill::Integers { lo: 0, hi: 1 }
        };
        let t = fill_tensor(value.dtype(), value.shape(), fill, seed + i as u64);
        write_npy_file(&folder.join(format!("in.{}.npy", value.name())), &t)?;
        inputs.push(Arc::new(t));
    }
    let outputs = evaluate(&model, &inputs, Keep::Outputs)?.outputs();
    for (v, t) in model.outputs().iter().zip(outputs) {
        let rms = (0..t.len()).map(|i| t.get_f64(i).powi(2)).sum::<f64>() / t.len().max(1) as f64;
        println!("{}: rms {:.3}", model[*v].name(), rms.sqrt());
        write_npy_file(&folder.join(format!("out.{}.npy", model[*v].name())), &t)?;
    }
    Ok(())
}
