//! Files that a model is read from: its own, and those of its external data.

mod build_onnx;

use build_onnx::{F32, import, node, one_node};
use graph::Model;
use onnx::proto::{ModelProto, StringStringEntryProto, TensorProto};
use onnx::{ImportOptions, import_file, read_tensor_proto_file};
use prost::Message;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// An f32 tensor of this shape with external data.
fn external(name: &str, dims: &[i64], entries: [&str; 3]) -> TensorProto {
    let keys = ["location", "offset", "length"];
    let entry = |(k, v): (&str, &str)| StringStringEntryProto {
        key: Some(k.into()),
        value: Some(v.into()),
    };
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(F32),
        data_location: Some(1),
        external_data: keys.into_iter().zip(entries).map(entry).collect(),
        ..Default::default()
    }
}

/// x + c, with c in the file `location`.
fn model(location: &str, offset: &str, length: &str) -> ModelProto {
    let c = external("c", &[2], [location, offset, length]);
    one_node(13, &[2], node("Add", &["x", "c"], &["y"], vec![]), vec![c])
}

/// A folder with `weights.bin`: 0, 5, 7.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let data = [0.0f32, 5.0, 7.0].map(f32::to_le_bytes).concat();
    std::fs::write(folder.path().join("weights.bin"), data).unwrap();
    folder
}

fn load(path: &Path, m: &ModelProto) -> Result<Model, String> {
    std::fs::write(path, m.encode_to_vec()).unwrap();
    import_file(path, &ImportOptions::default()).map_err(|e| e.to_string())
}

fn c(m: &Model) -> &[f32] {
    let c = m.find_value("c").and_then(|v| m.constant(v)).unwrap();
    c.as_slice()
}

#[test]
fn external_data_is_read_from_beside_the_model() {
    let folder = folder();
    let path = folder.path().join("m.onnx");
    let m = load(&path, &model("weights.bin", "4", "8")).unwrap();
    assert_eq!(c(&m), [5.0, 7.0]);
    for (location, offset, length, part) in [
        ("../weights.bin", "4", "8", "`..` is not allowed"),
        ("./sub/../weights.bin", "4", "8", "`..` is not allowed"),
        ("/etc/hostname", "0", "8", "outside the model's folder"),
        (
            "weights.bin",
            "8",
            "8",
            "12 bytes, and the tensor needs 8 bytes from byte 8 on",
        ),
        ("weights.bin", "18446744073709551615", "8", "from byte 1844"),
        ("weights.bin", "4", "4", "must have 8"),
        ("weights.bin", "x", "8", "is not a number"),
        ("weights.bin", "-4", "8", "is not a number"),
        ("weights.bin", "4", "-8", "is not a number"),
        (
            "absent.bin",
            "0",
            "8",
            "in `absent.bin`: it was looked for at `",
        ),
        ("absent.bin", "0", "8", "No such file"),
        ("", "0", "8", "the location is empty"),
        (".", "0", "8", "it is a directory"),
    ] {
        let error = load(&path, &model(location, offset, length)).unwrap_err();
        assert!(error.contains(part) && error.contains("`c`"), "{error}");
    }
    assert!(
        import(&model("weights.bin", "4", "8"))
            .unwrap_err()
            .to_string()
            .contains("from its file")
    );
}

#[test]
fn external_data_is_in_regular_files() {
    let folder = folder();
    let path = folder.path().join("m.onnx");
    pipe(&folder.path().join("pipe.bin"));
    symlink("/dev/zero", folder.path().join("zero.bin")).unwrap();
    let of = |location: &str| load(&path, &model(location, "0", "8")).unwrap_err();
    let error = of("pipe.bin");
    assert!(error.contains("`pipe.bin`: it is a named pipe"), "{error}");
    let error = of("zero.bin");
    assert!(error.contains("outside the model's folder"), "{error}");
}

#[test]
fn links_stay_in_the_folder() {
    let (folder, other) = (folder(), folder());
    let path = folder.path().join("m.onnx");
    symlink("weights.bin", folder.path().join("inside.bin")).unwrap();
    let far = other.path().join("weights.bin");
    symlink(&far, folder.path().join("outside.bin")).unwrap();
    symlink(other.path(), folder.path().join("folder")).unwrap();
    let m = load(&path, &model("inside.bin", "4", "8")).unwrap();
    assert_eq!(c(&m), [5.0, 7.0]);
    for location in ["outside.bin", "folder/weights.bin"] {
        let error = load(&path, &model(location, "4", "8")).unwrap_err();
        assert!(error.contains("outside the model's folder"), "{error}");
    }
    // A cache that keeps all files in one folder, and links to them in another.
    let linked = tempfile::tempdir().unwrap();
    let model = load(&other.path().join("0123"), &model("weights.bin", "4", "8")).unwrap();
    drop(model);
    for (file, name) in [("0123", "m.onnx"), ("weights.bin", "weights.bin")] {
        symlink(other.path().join(file), linked.path().join(name)).unwrap();
    }
    let m = import_file(&linked.path().join("m.onnx"), &ImportOptions::default()).unwrap();
    assert_eq!(c(&m), [5.0, 7.0]);
}

#[test]
fn tensors_share_equal_parts_of_a_file_and_never_overlap() {
    let folder = folder();
    let path = folder.path().join("m.onnx");
    let two = |at: &str| {
        let operands = [external("a", &[2], ["weights.bin", "4", "8"])];
        let b = external("b", &[2], ["weights.bin", at, "8"]);
        let constants = [&operands[..], &[b]].concat();
        one_node(
            13,
            &[2],
            node("Sum", &["x", "a", "b"], &["y"], vec![]),
            constants,
        )
    };
    let m = load(&path, &two("4")).unwrap();
    let bytes = |name: &str| {
        let v = m.find_value(name).unwrap();
        m.constant(v).unwrap().bytes().as_ptr()
    };
    assert_eq!(bytes("a"), bytes("b"));
    let error = load(&path, &two("0")).unwrap_err();
    assert!(error.contains("they overlap"), "{error}");
}

#[test]
fn models_and_tensors_are_regular_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    pipe(&path);
    let options = ImportOptions::default();
    for (path, kind) in [
        (&*path, "a named pipe"),
        (folder.path(), "a directory"),
        (Path::new("/dev/zero"), "a device"),
    ] {
        let error = import_file(path, &options).unwrap_err().to_string();
        assert!(error.contains(kind), "{error}");
        let error = read_tensor_proto_file(path).unwrap_err().to_string();
        assert!(error.contains(kind), "{error}");
    }
}

/// Fields on both sides of every buffer's end, in the file and from memory.
#[test]
fn a_large_file_is_read_as_its_bytes_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    for size in [1000, 1024, 16_383, 16_384, 20_000, 70_000] {
        let values: Vec<f32> = (0..size).map(|i| i as f32).collect();
        let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let constant = |name: &str| TensorProto {
            name: Some(name.into()),
            dims: vec![size],
            data_type: Some(F32),
            ..Default::default()
        };
        let a = TensorProto {
            raw_data: Some(raw.into()),
            ..constant("c")
        };
        let b = TensorProto {
            float_data: values.clone(),
            ..constant("b")
        };
        let sum = node("Sum", &["x", "c", "b"], &["y"], vec![]);
        let proto = one_node(13, &[size], sum, vec![a, b]);
        let m = load(&path, &proto).unwrap();
        assert_eq!(c(&m), values);
        assert_eq!(m.to_string(), import(&proto).unwrap().to_string());
    }
    let whole = std::fs::read(&path).unwrap();
    for n in [0, 1, 5000, 65_536, whole.len() - 1] {
        std::fs::write(&path, &whole[..n]).unwrap();
        let error = import_file(&path, &ImportOptions::default());
        assert!(error.unwrap_err().to_string().contains("not a whole"));
    }
}

/// A sparse file takes little of a disk and has bytes without end.
#[test]
fn files_larger_than_memory_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let grow = |path: &Path, len: u64| {
        let file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(path);
        file.unwrap().set_len(len).unwrap();
    };
    let weights = folder.path().join("w.bin");
    grow(&weights, 1 << 43);
    // Offsets beyond what 31 and 32 bits hold.
    let last = ((1u64 << 43) - 8).to_string();
    for offset in ["4", "2147483652", "4294967300", &last] {
        let m = load(&path, &model("w.bin", offset, "8")).unwrap();
        assert_eq!(c(&m), [0.0; 2]);
    }
    let beyond = ((1u64 << 43) - 4).to_string();
    let error = load(&path, &model("w.bin", &beyond, "8")).unwrap_err();
    assert!(error.contains("it has 8796093022208 bytes"), "{error}");
    grow(&path, 1 << 43);
    let options = ImportOptions::default();
    let error = import_file(&path, &options).unwrap_err().to_string();
    let said = "m.onnx`: the file has 8796093022208 bytes, and the machine has";
    assert!(error.contains(said), "{error}");
    let error = read_tensor_proto_file(&path).unwrap_err().to_string();
    assert!(error.contains("the machine has"), "{error}");
}
