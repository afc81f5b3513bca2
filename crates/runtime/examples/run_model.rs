//! A program that runs a compiled model, and has no compiler in it:
//! `cargo run --release -p runtime --example run_model -- MODEL.tsm INPUT.npy`.

use runtime::Model;
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, model, input] = &arguments[..] else {
        return Err("usage: run_model MODEL.tsm INPUT.npy".into());
    };
    let mut model = Model::load(Path::new(model), 1)?;
    let input = tensor::read_npy_file(Path::new(input))?;
    let name = model
        .compiled()
        .tensor(model.compiled().inputs()[0])
        .name
        .clone();
    for output in model.run(&[(&name, &input)])? {
        println!("{output:?}: the first element is {}", output.get_f64(0));
    }
    Ok(())
}
