//! The runner of file tests: it passes, fails and blesses where it should.

use std::fs;
use testkit::file_test::{BLESS, Case, Section, Suite, check};

const SHOUT: &str = "\
; test voice shout loud
; Comments stay.

;; case It says the word again, louder.
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

;; case It knows the name of the program.
;; in word

bye
;; out result
BYE
;; out program
p
";

/// The outputs of a case: the word in capitals, and the program's name if the
/// promise speaks of it.
fn shout(case: &Case) -> Result<Vec<Section>, String> {
    assert_eq!(
        (case.subject.as_str(), case.setting.as_str()),
        ("shout", "loud")
    );
    let mut out = vec![Section::new("result", case.input("word")?.to_uppercase())];
    if case.promise.contains("program") {
        out.push(Section::new("program", case.program()?.name));
    }
    Ok(out)
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn of(files: &[(&str, &str)]) -> Folder {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        Folder(dir)
    }

    fn check(&self, bless: bool) -> Result<usize, String> {
        self.check_with(bless, shout)
    }

    fn check_with(
        &self,
        bless: bool,
        f: impl FnMut(&Case) -> Result<Vec<Section>, String>,
    ) -> Result<usize, String> {
        let suite = Suite {
            folder: self.0.path(),
            kind: "voice",
            subjects: &["shout"],
            setting: Some("VOLUME"),
        };
        let report = check(&suite, bless, f);
        let folder = format!("{}/", self.0.path().display());
        report.map_err(|e| e.replace(&folder, ""))
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap()
    }
}

#[test]
fn expected_outputs_pass() {
    let folder = Folder::of(&[("shout.txt", SHOUT), ("notes.md", "")]);
    assert_eq!(folder.check(false), Ok(2));
    assert_eq!(folder.check(true), Ok(2));
    assert_eq!(folder.text("shout.txt"), SHOUT);
}

#[test]
fn a_wrong_output_fails_with_its_case_and_its_lines() {
    let wrong = SHOUT.replace("HELLO", "OH\nHALLO");
    let folder = Folder::of(&[("shout.txt", &wrong)]);
    let report = folder.check(false).unwrap_err();
    let expected = format!(
        "shout.txt:4: It says the word again, louder.
@@ line 13 @@
  ;; out result
- OH
- HALLO
+ HELLO
{BLESS}=1 takes the lines with `+` for those with `-`\n"
    );
    assert_eq!(report, expected);
    assert_eq!(folder.text("shout.txt"), wrong);
}

#[test]
fn distant_differences_are_shown_apart() {
    let letters = |upper: &str| -> String {
        let line = |c: char| match upper.contains(c) {
            true => format!("{}\n", c.to_ascii_uppercase()),
            false => format!("{c}\n"),
        };
        ('a'..='z').map(line).collect()
    };
    let text = format!(
        "; test voice shout loud\n;; case Letters.\n;; out result\n{}",
        letters("bx")
    );
    let folder = Folder::of(&[("shout.txt", &text)]);
    let plain = |_: &Case| Ok(vec![Section::new("result", letters(""))]);
    let report = folder.check_with(false, plain).unwrap_err();
    let hunks = "@@ line 3 @@\n  ;; out result\n  a\n- B\n+ b\n  c\n  d\n  e\n\
                 @@ line 24 @@\n  u\n  v\n  w\n- X\n+ x\n  y\n  z\n";
    assert!(report.contains(hunks), "{report}");
}

#[test]
fn blessing_rewrites_the_outputs_and_nothing_else() {
    let files = [
        SHOUT.replace("HELLO", "HALLO\n  twice"),
        SHOUT.replace(";; out result\nHELLO\n", ""),
        SHOUT.replace(";; out program\np\n", ";; out program\nq\n;; out more\nx\n"),
        SHOUT.replace(";; out result\nBYE\n;; out program\np\n", ""),
    ];
    for text in files {
        let folder = Folder::of(&[("shout.txt", &text)]);
        assert!(folder.check(false).is_err(), "{text}");
        assert_eq!(folder.check(true), Ok(2));
        assert_eq!(folder.text("shout.txt"), SHOUT);
        assert_eq!(folder.check(false), Ok(2));
    }
}

#[test]
fn what_a_test_refuses_is_reported_and_not_blessed() {
    let wrong = SHOUT.replace("HELLO", "HALLO");
    let folder = Folder::of(&[("shout.txt", &wrong)]);
    let hoarse = |case: &Case| match case.line {
        4 => Err("no voice".into()),
        _ => shout(case),
    };
    let report = folder.check_with(true, hoarse).unwrap_err();
    let refused = "shout.txt:4: It says the word again, louder.\nno voice\n";
    assert_eq!(report, refused);
    let silent = folder.check_with(true, |_| Ok(vec![])).unwrap_err();
    assert!(silent.contains("it cannot fail"), "{silent}");
    assert_eq!(folder.text("shout.txt"), wrong);
}

#[test]
fn every_subject_has_a_file_and_every_file_a_subject() {
    let folder = Folder::of(&[("whisper.txt", SHOUT)]);
    for bless in [false, true] {
        let report = folder.check(bless).unwrap_err();
        let expected = "whisper.txt: there is no voice `whisper`\n\
                        shout.txt: the voice `shout` needs this file\n";
        assert_eq!(report, expected);
    }
}

#[test]
fn malformed_files_are_reported_with_the_line() {
    let wrong_header = |line: &str| {
        format!("shout.txt: the first line is `{line}`, not `; test voice shout VOLUME`\n")
    };
    let at = |line: usize, why: &str| format!("shout.txt: line {line}: {why}\n");
    let after = |text: &str| format!("; test voice shout loud\n{text}");
    let cases = [
        ("".into(), wrong_header("")),
        ("program p {}".into(), wrong_header("program p {}")),
        (
            "; test voice shouts".into(),
            wrong_header("; test voice shouts"),
        ),
        (
            "; test voice shout".into(),
            wrong_header("; test voice shout"),
        ),
        (
            "; test pass shout loud".into(),
            wrong_header("; test pass shout loud"),
        ),
        (after(""), "shout.txt: there is no `;; case`\n".into()),
        (
            after("text\n;; case A."),
            at(2, "text before the first `;; case`"),
        ),
        (
            after(";; in word"),
            at(2, "a section before the first `;; case`"),
        ),
        (
            after("\n;; case"),
            at(
                3,
                "the case has no promise: `;; case ONE LINE OF PLAIN ENGLISH`",
            ),
        ),
        (
            after(";; case A.\n;; case A."),
            at(3, "an earlier case has the same promise"),
        ),
        (
            after(";; case A.\n;; in a\n;; in a"),
            at(4, "the case has an input of that name"),
        ),
        (
            after(";; case A.\n;; out a\n;; in a"),
            at(4, "an input after the outputs of its case"),
        ),
        (
            after(";; case A.\n;; result"),
            at(3, "not `;; case PROMISE`, `;; in NAME` or `;; out NAME`"),
        ),
    ];
    for (text, expected) in cases {
        let folder = Folder::of(&[("shout.txt", &text)]);
        assert_eq!(folder.check(false), Err(expected), "{text}");
    }
}

#[test]
fn programs_are_parsed_and_verified() {
    let report = |text: String| {
        Folder::of(&[("shout.txt", &text)])
            .check(false)
            .unwrap_err()
    };
    let broken = report(SHOUT.replace("Y[0] = 1.0", "Y[0] = 1"));
    assert!(broken.contains("`1` is i64, expected f32"), "{broken}");
    // The place is that in the file, also for a case without a program of its own.
    let wrong = report(SHOUT.replace("block b", "blocks b"));
    assert!(wrong.starts_with("shout.txt:16: "), "{wrong}");
    assert!(wrong.contains("line 7, column 3:"), "{wrong}");
    let none = report("; test voice shout loud\n;; case A program.\n;; in word\na\n".into());
    assert!(none.contains("there is no program"), "{none}");
    let none = report(SHOUT.replace(";; in word\nhello\n", ""));
    assert!(none.contains("there is no section `;; in word`"), "{none}");
}
