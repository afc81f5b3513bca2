//! Models as text: what comes back, and what is refused.

use learn::{
    Activation, Coefficients, Design, Examples, GaussianProcess, GaussianSettings, LoadError,
    Model, Network, Objective, Training, TreeSettings, Trees, load, save,
};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

fn table(rows: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let row = |rng: &mut Pcg64Mcg| (0..3).map(|_| rng.random_range(-1.0..1.0)).collect();
    (0..rows).map(|_| row(&mut rng)).collect()
}

fn targets(rows: &[Vec<f64>]) -> Vec<f64> {
    rows.iter()
        .map(|r| 1e-3 * (r[0] * r[1]).sin() + 7.0 * r[2])
        .collect()
}

fn trees() -> Trees {
    let mut rows = table(200, 1);
    let y = targets(&rows);
    rows[3][1] = f64::NAN;
    let settings = TreeSettings {
        rounds: 20,
        ..TreeSettings::simulators(Objective::SquaredError, 3)
    };
    Trees::fitted(&Examples::of(&rows, &y), &settings).unwrap()
}

fn process(length_each: bool) -> GaussianProcess {
    let rows = table(30, 2);
    let settings = GaussianSettings {
        length_each,
        restarts: 0,
        kernel_rows: 30,
        seed: 0,
    };
    GaussianProcess::fitted(&rows, &targets(&rows), &settings).unwrap()
}

fn network(activation: Activation) -> Network {
    let rows = table(50, 4);
    let training = Training {
        hidden: vec![6, 4],
        epochs: 5,
        batch: 10,
        rate: 1e-2,
        seed: 0,
    };
    let design = Design {
        activation,
        ..Design::SIMULATORS
    };
    Network::designed(&rows, &targets(&rows), &training, design).unwrap()
}

/// Saves and loads, and gives the text.
fn round_trip<M: Model>(model: &M, predict: impl Fn(&M, &[f64]) -> f64) -> String {
    let text = save(model, 4);
    let loaded: M = load(&text, 4).map_err(|e| e.to_string()).unwrap();
    for row in table(50, 9) {
        assert_eq!(
            predict(model, &row).to_bits(),
            predict(&loaded, &row).to_bits()
        );
    }
    assert_eq!(save(&loaded, 4), text);
    text
}

#[test]
fn loaded_models_predict_the_same_bit_by_bit() {
    let coefficients = Coefficients(vec![0.1, -0.0, f64::MIN_POSITIVE / 8.0]);
    round_trip(&coefficients, Coefficients::predict);
    let trees = trees();
    round_trip(&trees, Trees::predict);
    let again: Trees = load(&save(&trees, 1), 1).unwrap();
    assert_eq!(again, trees);
    for length_each in [false, true] {
        round_trip(&process(length_each), |m, r| m.predict(r).mean);
        round_trip(&process(length_each), |m, r| m.predict(r).deviation);
    }
    for activation in [Activation::Relu, Activation::Tanh, Activation::None] {
        round_trip(&network(activation), Network::predict);
    }
}

#[test]
fn the_form_is_the_documented_one() {
    let text = save(&Coefficients(vec![0.5, 2.0]), 3);
    assert_eq!(
        text,
        "tunesmith-model 1\nkind coefficients\nfeature-version 3\nfactors 0.5 2.0\nend 7dfc4c69bc7c6856\n"
    );
}

#[test]
fn foreign_newer_and_other_models_are_named() {
    let text = save(&Coefficients(vec![1.0]), 3);
    let of = |text: &str| load::<Coefficients>(text, 3).err();
    for foreign in [
        "",
        "{}",
        "tunesmith-models 1\n",
        "tunesmith-model\n",
        "tunesmith-model x\n",
    ] {
        assert_eq!(of(foreign), Some(LoadError::Foreign), "{foreign}");
    }
    let newer = of("tunesmith-model 2\nanything\n");
    assert_eq!(newer, Some(LoadError::Newer { version: 2 }));
    let other = load::<Trees>(&text, 3).err();
    let (found, expected) = ("coefficients".to_owned(), "trees");
    assert_eq!(other, Some(LoadError::Kind { found, expected }));
    let other = load::<Coefficients>(&text, 4).err();
    let (found, expected) = (3, 4);
    assert_eq!(other, Some(LoadError::Features { found, expected }));
}

fn refuses_every_damage<M: Model>(text: &str) {
    let of = |text: &str| load::<M>(text, 4).err();
    assert_eq!(of(text), None);
    let step = (text.len() / 97).max(1);
    for end in (0..text.len()).step_by(step).chain([text.len() - 1]) {
        assert!(of(&text[..end]).is_some(), "cut off at {end}");
    }
    for at in (0..text.len()).step_by(step) {
        let mut bytes = text.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'7' { b'8' } else { b'7' };
        let changed = String::from_utf8(bytes).unwrap();
        assert!(of(&changed).is_some(), "changed at {at}");
    }
}

#[test]
fn damaged_models_are_refused() {
    refuses_every_damage::<Coefficients>(&save(&Coefficients(vec![1.0, 2.0]), 4));
    refuses_every_damage::<Trees>(&save(&trees(), 4));
    refuses_every_damage::<GaussianProcess>(&save(&process(false), 4));
    refuses_every_damage::<Network>(&save(&network(Activation::Tanh), 4));
}

/// The text with other lines and a checksum that fits.
fn forged(text: &str, change: impl Fn(&str) -> String) -> String {
    let body: String = text
        .lines()
        .filter(|l| !l.starts_with("end "))
        .map(|l| change(l) + "\n")
        .collect();
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = body.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    format!("{body}end {hash:016x}\n")
}

#[test]
fn models_that_contradict_themselves_are_refused() {
    fn refused<M: Model>(text: &str, line: &str, other: &str) {
        let changed = forged(text, |l| {
            let hit = l.split(' ').next() == Some(line);
            if hit { other.to_owned() } else { l.to_owned() }
        });
        let found = load::<M>(&changed, 4).err();
        assert!(
            matches!(found, Some(LoadError::Damaged { .. })),
            "{line}: {found:?}"
        );
    }
    let text = save(&trees(), 4);
    assert_eq!(forged(&text, str::to_owned), text);
    let nodes = text
        .lines()
        .find(|l| l.starts_with("left"))
        .map_or(0, |l| l.split(' ').count() - 1);
    // Children before their parents would never end.
    refused::<Trees>(&text, "left", &("left".to_owned() + &" 0".repeat(nodes)));
    refused::<Trees>(
        &text,
        "left",
        &("left".to_owned() + &" 99999".repeat(nodes)),
    );
    refused::<Trees>(&text, "split", &("split".to_owned() + &" 9".repeat(nodes)));
    refused::<Trees>(&text, "split", "split");
    refused::<Trees>(&text, "value", "value 1.0 x");
    refused::<Trees>(&text, "trees", "trees 99999999999");
    refused::<Trees>(&text, "trees", "trees 1");
    let text = save(&network(Activation::Relu), 4);
    refused::<Network>(&text, "activation", "activation gelu");
    refused::<Network>(&text, "widths", "widths 6 4 2");
    refused::<Network>(&text, "widths", "widths 99999999999 1");
    refused::<Network>(&text, "weights", "weights 1.0");
    let text = save(&process(false), 4);
    refused::<GaussianProcess>(&text, "kernel", "kernel 1.0 2.0");
    refused::<GaussianProcess>(&text, "row", "row 1.0 2.0");
    refused::<GaussianProcess>(&text, "kernel", "kernel NaN NaN NaN");
}
