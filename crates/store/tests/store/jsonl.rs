//! JSON lines: whole round trips, torn and bad lines, other versions.

use serde_json::{Value, json};
use store::{
    Ask, BadLine, Claim, EventKind, Extra, Imported, JsonLines, RecordQuery, Store, StoreError,
    export_jsonl, import_jsonl,
};

use crate::samples::{event, every_outcome, prepared, record, tell, timed};

fn export(store: &Store) -> String {
    let mut bytes = Vec::new();
    export_jsonl(store, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// An import by which every claim is believed.
fn import(store: &Store, text: &str) -> Result<Imported, StoreError> {
    import_bytes(store, text.as_bytes())
}

fn import_bytes(store: &Store, bytes: &[u8]) -> Result<Imported, StoreError> {
    import_jsonl(store, &JsonLines::read(bytes)?, |_| Ok(()))
}

fn full() -> Store {
    let store = prepared();
    for (trial, outcome) in every_outcome().into_iter().enumerate() {
        store
            .insert_record(&record("r1", trial as u64, outcome))
            .unwrap();
    }
    let ask = Ask {
        trial: 0,
        algorithm: "direct".into(),
        sketch: 0,
        values: vec![1, 2],
        extra: Extra::new(),
    };
    let told = tell(&record("r1", 0, timed(&[5])));
    let (name, payload) = ("sonnet".into(), json!({"lines": 14}));
    for kind in [
        ask.into(),
        told.into(),
        EventKind::Unknown { name, payload },
    ] {
        store.insert_event(&event("r1", kind)).unwrap();
    }
    store
        .end_run("r1", 1_700_000_000_900, &json!({"best": 1.25}))
        .unwrap();
    store
}

#[test]
fn an_import_exports_the_same_bytes_and_importing_again_adds_nothing() {
    let source = full();
    let text = export(&source);
    let records = every_outcome().len() as u64;
    let copy = Store::open_in_memory().unwrap();
    let first = import(&copy, &text).unwrap();
    assert_eq!((first.added_records, first.known), (records, 0));
    assert_eq!(first.added, text.lines().count() as u64 - 1);
    assert_eq!(export(&copy), text);
    let again = import(&copy, &format!("{text}{text}")).unwrap();
    assert_eq!((again.added, again.known), (0, 2 * first.added));
    assert_eq!(export(&copy), text);
}

#[test]
fn lines_say_their_type_first_and_keep_their_field_order() {
    let store = prepared();
    store.insert_record(&record("r1", 0, timed(&[5]))).unwrap();
    let text = export(&store);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        r#"{"type":"header","format":"tunesmith-records","version":1}"#
    );
    for (line, start) in lines[1..].iter().zip([
        r#"{"type":"task","key":"t1","text":"#,
        r#"{"type":"target","triple":"#,
        r#"{"type":"machine","fingerprint":"#,
        r#"{"type":"run","run_id":"#,
        r#"{"type":"record","run_id":"r1","trial":0,"final":false,"task":"t1","#,
    ]) {
        assert!(line.starts_with(start), "{line}");
    }
    assert_eq!(lines.len(), 6);
}

/// The bad lines of an import, which leaves nothing of it in the store, and whether it
/// is the last one alone.
fn bad_and_torn(bytes: &[u8]) -> (Vec<BadLine>, bool) {
    let copy = Store::open_in_memory().unwrap();
    let empty = export(&copy);
    let Err(StoreError::BadLines { lines, torn }) = import_bytes(&copy, bytes) else {
        panic!("{} bytes were imported", bytes.len());
    };
    assert_eq!(export(&copy), empty);
    (lines, torn)
}

fn bad_lines(bytes: &[u8]) -> Vec<BadLine> {
    bad_and_torn(bytes).0
}

#[test]
fn a_file_that_was_cut_off_is_refused_wherever_it_was() {
    let text = export(&full());
    let last = text.trim_end().rfind('\n').unwrap() + 1;
    let whole = text.lines().count() as u64;
    for cut in [last + 1, last + 9, last + 40, text.len() - 2] {
        let (bad, torn) = bad_and_torn(&text.as_bytes()[..cut]);
        assert_eq!(bad.len(), 1);
        assert_eq!(bad[0].line, whole, "cut at {cut}");
        assert!(bad[0].reason.contains("cut off"), "{bad:?}");
        assert!(torn);
        import(&Store::open_in_memory().unwrap(), &text[..last]).unwrap();
        // There is more after it.
        let more = format!("{}\n{text}", &text[..cut]);
        assert!(!bad_and_torn(more.as_bytes()).1);
    }
    let (bad, torn) = bad_and_torn(&text.as_bytes()[..9]);
    assert_eq!((bad[0].line, torn), (1, false));
    // Only the newline is missing: the line is whole.
    let copy = Store::open_in_memory().unwrap();
    let imported = import(&copy, text.trim_end()).unwrap();
    assert_eq!(imported.added, whole - 1);
}

#[test]
fn a_line_without_end_is_read_in_part() {
    let text = export(&full());
    let lines = text.lines().count() as u64;
    let endless = std::io::BufReader::with_capacity(1 << 20, std::io::repeat(b' '));
    let read = JsonLines::read(std::io::Read::chain(text.as_bytes(), endless)).unwrap();
    let copy = Store::open_in_memory().unwrap();
    let error = import_jsonl(&copy, &read, |_| Ok(())).unwrap_err();
    let StoreError::BadLines { lines: bad, torn } = error else {
        panic!("{error}");
    };
    assert_eq!((bad.len(), bad[0].line, torn), (1, lines + 1, false));
    assert!(bad[0].reason.contains("64 MiB"), "{bad:?}");
}

#[test]
fn a_file_begins_with_a_header_of_this_version() {
    let text = export(&full());
    let headless = text.split_once('\n').unwrap().1;
    let of = |text: &str| bad_lines(text.as_bytes()).remove(0);
    let newer = text.replacen("\"version\":1", "\"version\":99", 1);
    let other = text.replacen("tunesmith-records", "recipes", 1);
    for (text, line, reason) in [
        (headless, 1, "no header"),
        ("", 1, "no header"),
        ("\n\n", 1, "no header"),
        ("\nnot json\n", 2, "no header"),
        (&newer, 1, "version 99"),
        (&other, 1, "recipes"),
        // Of two files, the second.
        (
            &format!("{text}{newer}"),
            1 + text.lines().count() as u64,
            "version 99",
        ),
    ] {
        let bad = of(text);
        assert_eq!(bad.line, line, "{bad:?}");
        assert!(bad.reason.contains(reason), "{bad:?}");
    }
    let blank = Store::open_in_memory().unwrap();
    import(&blank, &format!("\n{text}")).unwrap();
    assert_eq!(export(&blank), text);
}

#[test]
fn bad_lines_are_reported_by_number_and_nothing_is_imported() {
    let text = export(&full());
    let mut lines: Vec<String> = text.lines().map(Into::into).collect();
    lines.insert(5, "not json".into());
    lines.insert(6, r#"{"type":"record","run_id":"r1"}"#.into());
    lines.insert(7, r#"{"type":"sonnet","lines":14}"#.into());
    lines.insert(
        8,
        lines[9].replace("\"trace\":\"split i", "\"trace\":\"reorder i"),
    );
    lines.insert(9, r#"{"type":"task","key":"cut"#.into());
    lines.insert(10, String::new());
    let elsewhere = lines[11].replace("\"task\":\"t1\"", "\"task\":\"t9\"");
    lines.insert(11, elsewhere);
    let mut bytes = lines.join("\n").into_bytes();
    bytes.extend_from_slice(b"\n\"\xff\xfe\"\n");
    let bad = bad_lines(&bytes);
    let numbers: Vec<u64> = bad.iter().map(|bad| bad.line).collect();
    // Line 9 came before the record it contradicts, which is therefore the refused one.
    let last = lines.len() as u64 + 1;
    assert_eq!(numbers, [6, 7, 8, 10, 12, 14, last], "{bad:#?}");
    let reasons: Vec<&str> = bad.iter().map(|bad| bad.reason.as_str()).collect();
    assert!(reasons[2].contains("sonnet"), "{reasons:#?}");
    assert!(reasons[4].contains("t9"), "{reasons:#?}");
    assert!(reasons[5].contains("trace"), "{reasons:#?}");
    assert!(
        reasons.iter().all(|reason| !reason.contains(" at line ")),
        "{reasons:#?}"
    );
}

#[test]
fn claims_that_are_not_believed_are_bad_lines() {
    let text = export(&full());
    let copy = Store::open_in_memory().unwrap();
    let judge = |claim: Claim<'_>| match claim {
        Claim::Task(t) => Err(format!("no such task as {}", t.key)),
        Claim::Record(_) => Ok(()),
    };
    let lines = JsonLines::read(text.as_bytes()).unwrap();
    let error = import_jsonl(&copy, &lines, judge).unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("the first is line 2: no such task as t1"),
        "{said}"
    );
    let judge = |claim: Claim<'_>| match claim {
        Claim::Record(r) if r.trial == 3 => Err("not the third".into()),
        _ => Ok(()),
    };
    let error = import_jsonl(&copy, &lines, judge).unwrap_err();
    let StoreError::BadLines { lines, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(lines.len(), 1);
    assert!(copy.tasks().unwrap().is_empty());
}

#[test]
fn fields_and_kinds_of_a_newer_version_survive_import_and_export() {
    let mut lines: Vec<Value> = export(&full())
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for (number, line) in lines.iter_mut().enumerate().skip(1) {
        line["newer_field"] = json!({"n": number, "f": 0.1, "list": [null, true]});
        if line["type"] == "record" {
            line["outcome"]["newer_field"] = json!(-1);
        }
        if line["type"] == "event" {
            line["payload"]["newer_field"] = json!({"deep": [1.5, null]});
        }
        if line["type"] == "target" {
            line["newer_field"] = json!("sve2");
        }
    }
    let target = lines
        .iter()
        .find(|line| line["type"] == "target")
        .unwrap()
        .clone();
    let target: store::TargetKey = serde_json::from_value(without_type(target)).unwrap();
    for line in lines.iter_mut().filter(|line| line["type"] == "record") {
        line["target"] = json!(target.text());
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let copy = Store::open_in_memory().unwrap();
    import(&copy, &text).unwrap();
    let exported: Vec<Value> = export(&copy)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(exported, lines);
}

fn without_type(mut line: Value) -> Value {
    line.as_object_mut().unwrap().remove("type");
    line
}

#[test]
fn stores_merge_and_keep_both_sides() {
    let (left, right) = (prepared(), prepared());
    left.insert_record(&record("r1", 0, timed(&[5]))).unwrap();
    right.insert_record(&record("r1", 1, timed(&[6]))).unwrap();
    right.insert_record(&record("r1", 0, timed(&[5]))).unwrap();
    let imported = import(&left, &export(&right)).unwrap();
    assert_eq!(imported.added_records, 1);
    let trials: Vec<u64> = left
        .records_for(&RecordQuery::default())
        .unwrap()
        .iter()
        .map(|r| r.trial)
        .collect();
    assert_eq!(trials, [0, 1]);
}

#[test]
fn long_imports_are_complete() {
    let source = prepared();
    let records: Vec<_> = (0..2500)
        .map(|trial| record("r1", trial, timed(&[trial])))
        .collect();
    source.append(&records, &[]).unwrap();
    let copy = Store::open_in_memory().unwrap();
    let imported = import(&copy, &export(&source)).unwrap();
    assert_eq!(imported.added_records, 2500);
    assert_eq!(copy.records_for(&RecordQuery::default()).unwrap(), records);
}
