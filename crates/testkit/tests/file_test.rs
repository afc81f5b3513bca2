//! The runner of file tests: it passes, fails and blesses where it should.

use std::fs;
use std::path::Path;
use testkit::file_test::{FileTest, Section, check_folder};

const SOURCE: &str = "\
; test shout loud
; Says it again, louder.
program p {
  output Y: f32[1]
  block b [] {
    Y[0] = 1.0
  }
}

;; in word
hello

;; out result
HELLO
";

fn shout(t: &FileTest) -> Result<Vec<Section>, String> {
    assert_eq!(t.arguments, ["loud"]);
    let word = t.input("word")?;
    Ok(vec![Section::new("result", word.to_uppercase())])
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

#[test]
fn equal_outputs_pass_in_all_folders() {
    let other = "; test other\n";
    let dir = folder(&[
        ("a.txt", SOURCE),
        ("b/c.txt", SOURCE),
        ("d.txt", other),
        ("e.md", ""),
    ]);
    assert_eq!(check_folder(dir.path(), "shout", false, shout), Ok(2));
}

#[test]
fn a_difference_names_file_output_and_lines() {
    let text = SOURCE.replace("HELLO", "OH\nHALLO");
    let dir = folder(&[("a.txt", &text)]);
    let report = check_folder(dir.path(), "shout", false, shout).unwrap_err();
    let path = dir.path().join("a.txt");
    let expected = format!(
        "{}: output `result`:\nfrom line 1\n- OH\n- HALLO\n+ HELLO\n\n\
         BLESS=1 accepts outputs as they are now",
        path.display()
    );
    assert_eq!(report, expected);
    assert_eq!(fs::read_to_string(path).unwrap(), text);
}

#[test]
fn blessing_writes_the_outputs_and_keeps_the_rest() {
    let wrong = SOURCE.replace("HELLO\n", "HALLO\n\n;; out more\nx\n");
    let unblessed = SOURCE.split("\n;; out").next().unwrap().to_string();
    let dir = folder(&[("a.txt", &wrong), ("b.txt", &unblessed)]);
    assert!(check_folder(dir.path(), "shout", false, shout).is_err());
    assert_eq!(check_folder(dir.path(), "shout", true, shout), Ok(2));
    for name in ["a.txt", "b.txt"] {
        assert_eq!(fs::read_to_string(dir.path().join(name)).unwrap(), SOURCE);
    }
    assert_eq!(check_folder(dir.path(), "shout", false, shout), Ok(2));
}

#[test]
fn what_cannot_fail_fails() {
    let dir = folder(&[("a.txt", SOURCE)]);
    let none = check_folder(dir.path(), "whisper", false, shout).unwrap_err();
    assert!(none.contains("no `; test whisper` file"), "{none}");
    let silent = check_folder(dir.path(), "shout", true, |_| Ok(vec![])).unwrap_err();
    assert!(silent.contains("cannot fail"), "{silent}");
    let refused = check_folder(dir.path(), "shout", true, |_| Err("no".into())).unwrap_err();
    assert!(refused.contains("a.txt: no"), "{refused}");
}

#[test]
fn malformed_files_are_reported() {
    let cases = [
        ("program p {}", "the first line is not `; test KIND`"),
        (
            "; test shout\n;; result\n",
            "line 2: not `;; in NAME` or `;; out NAME`",
        ),
        (
            "; test shout\n;; out a\n;; out a\n",
            "two sections are named `a`",
        ),
    ];
    for (text, expected) in cases {
        let dir = folder(&[("a.txt", text)]);
        let report = check_folder(dir.path(), "shout", false, shout).unwrap_err();
        assert!(report.contains(expected), "{report}");
    }
}

#[test]
fn programs_are_parsed_and_verified() {
    let parse = |text: &str| FileTest::parse(Path::new("a.txt"), text).unwrap().program();
    assert_eq!(parse(SOURCE).unwrap().name, "p");
    let broken = parse(&SOURCE.replace("Y[0] = 1.0", "Y[0] = 1")).unwrap_err();
    assert!(broken.contains("`1` is i64, expected f32"), "{broken}");
    // The place is that in the file.
    let text = SOURCE
        .replace("block b", "blocks b")
        .replace("loud\n", "loud\n\n");
    let wrong = parse(&text).unwrap_err();
    assert!(wrong.starts_with("line 6, column 3:"), "{wrong}");
}
