//! JSON lines: whole round trips, torn and bad lines, other versions.

use serde_json::{Value, json};
use store::{Filter, NewEvent, Store, export_jsonl, import_jsonl};

use crate::samples::{every_outcome, prepared, record, timed};

fn export(store: &Store) -> String {
    let mut bytes = Vec::new();
    export_jsonl(store, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn full() -> Store {
    let store = prepared();
    for (trial, outcome) in every_outcome().into_iter().enumerate() {
        store
            .insert_record(&record("r1", trial as u64, outcome))
            .unwrap();
    }
    for kind in ["ask", "tell"] {
        let event = NewEvent {
            run_id: "r1".into(),
            kind: kind.into(),
            task: Some("t1".into()),
            payload: json!({"candidates": [1, 2]}),
        };
        store.insert_event(&event).unwrap();
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
    let first = import_jsonl(&copy, text.as_bytes()).unwrap();
    assert_eq!((first.added_records, first.known), (records, 0));
    assert_eq!(first.added, text.lines().count() as u64 - 1);
    assert!(first.bad.is_empty() && first.torn.is_none(), "{first:?}");
    assert_eq!(export(&copy), text);
    let again = import_jsonl(&copy, format!("{text}{text}").as_bytes()).unwrap();
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

#[test]
fn a_torn_last_line_is_a_warning_wherever_it_was_cut() {
    let text = export(&full());
    let last = text.trim_end().rfind('\n').unwrap() + 1;
    let whole = text.lines().count() as u64;
    for cut in [last + 1, last + 9, last + 40, text.len() - 2] {
        let copy = Store::open_in_memory().unwrap();
        let imported = import_jsonl(&copy, &text.as_bytes()[..cut]).unwrap();
        assert!(imported.bad.is_empty(), "{imported:?}");
        assert_eq!(
            imported.torn.as_ref().map(|torn| torn.line),
            Some(whole),
            "cut at {cut}"
        );
        assert_eq!(imported.added, whole - 2);
    }
    // Only the newline is missing: the line is whole.
    let copy = Store::open_in_memory().unwrap();
    let imported = import_jsonl(&copy, text.trim_end().as_bytes()).unwrap();
    assert_eq!((imported.torn, imported.added), (None, whole - 1));
}

#[test]
fn bad_lines_are_reported_by_number_and_the_rest_is_imported() {
    let text = export(&full());
    let mut lines: Vec<String> = text.lines().map(Into::into).collect();
    lines[0] = r#"{"type":"header","format":"recipes","version":1}"#.into();
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
    let copy = Store::open_in_memory().unwrap();
    let imported = import_jsonl(&copy, bytes.as_slice()).unwrap();
    let bad: Vec<u64> = imported.bad.iter().map(|bad| bad.line).collect();
    // Line 9 came before the record it contradicts, which is therefore the refused one.
    let last = lines.len() as u64 + 1;
    assert_eq!(bad, [1, 6, 7, 8, 10, 12, 14, last], "{:#?}", imported.bad);
    let reasons: Vec<&str> = imported.bad.iter().map(|bad| bad.reason.as_str()).collect();
    assert!(reasons[0].contains("recipes"), "{reasons:#?}");
    assert!(reasons[3].contains("sonnet"), "{reasons:#?}");
    assert!(reasons[5].contains("t9"), "{reasons:#?}");
    assert!(reasons[6].contains("trace"), "{reasons:#?}");
    assert!(
        reasons.iter().all(|reason| !reason.contains(" at line ")),
        "{reasons:#?}"
    );
    assert!(imported.torn.is_none());
    assert_eq!(imported.added_records, every_outcome().len() as u64);
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
    let imported = import_jsonl(&copy, text.as_bytes()).unwrap();
    assert!(imported.bad.is_empty(), "{:#?}", imported.bad);
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
    let imported = import_jsonl(&left, export(&right).as_bytes()).unwrap();
    assert_eq!((imported.added_records, imported.bad.len()), (1, 0));
    let trials: Vec<u64> = left
        .records_for(&Filter::default())
        .unwrap()
        .iter()
        .map(|r| r.trial)
        .collect();
    assert_eq!(trials, [0, 1]);
}

#[test]
fn imports_longer_than_a_chunk_are_complete() {
    let source = prepared();
    let records: Vec<_> = (0..2500)
        .map(|trial| record("r1", trial, timed(&[trial])))
        .collect();
    source.append(&records, &[]).unwrap();
    let copy = Store::open_in_memory().unwrap();
    let imported = import_jsonl(&copy, export(&source).as_bytes()).unwrap();
    assert_eq!(imported.added_records, 2500);
    assert_eq!(copy.records_for(&Filter::default()).unwrap(), records);
}
