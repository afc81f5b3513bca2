//! From counts to scores: a predictor for one processor and one type of kernel, of any shape.
//!
//! Owns training, scoring and the file of a predictor. The learners are in `methods`.

use crate::features::{FEATURE_VERSION, FeatureSet, Means, Window, normalised};
use crate::methods::{Method, Regressor, Table};
use crate::metrics::Metrics;
use crate::sample::Sample;
use learn::{LoadError, Unfit};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The file's form that is written and read.
const FORM: u32 = 1;

/// How a predictor is trained.
#[derive(Clone, Copy)]
pub struct TrainOptions {
    pub method: &'static Method,
    /// What it learns from.
    pub features: FeatureSet,
    /// The share of each group by which parameters are chosen, in 0..1.
    pub validation: f64,
    pub seed: u64,
}

/// What is known of a predictor, besides its learner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct About {
    form: u32,
    pub cpu: String,
    /// The instruction set of the kernels; empty where the samples did not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target: String,
    pub kind: String,
    pub method: String,
    pub feature_version: u32,
    pub features: FeatureSet,
    /// Levels of cache behind the first one.
    pub shared_levels: usize,
    /// Timed samples that it learned from.
    pub samples: usize,
    /// The learner's parameters by their names, as chosen.
    pub parameters: BTreeMap<String, f64>,
    /// For each group, how a learner with these parameters orders samples that it did not learn from, but by
    /// which the parameters were chosen.
    pub validation: BTreeMap<String, Metrics>,
}

/// The file of a predictor.
#[derive(Serialize, Deserialize)]
struct Saved {
    #[serde(flatten)]
    about: About,
    model: String,
}

/// Scores candidates of its processor and type of kernel. Less is better; a score has no unit.
pub struct Predictor {
    about: About,
    learner: Box<dyn Regressor>,
}

/// Why a predictor cannot be trained, loaded or used.
#[derive(Debug)]
pub enum PredictorError {
    /// This group has samples without a measured time above 0, or fewer than two samples.
    Untimed {
        group: String,
    },
    /// No sample is there.
    Empty,
    /// The samples, or a sample and the predictor, differ in this.
    Differ {
        what: &'static str,
        found: String,
        expected: String,
    },
    /// Of a sample of this group nobody said what reading its code tells.
    Unread {
        group: String,
    },
    Learner(Unfit),
    /// The file cannot be read or written.
    File {
        path: PathBuf,
        error: std::io::Error,
    },
    /// The file is no predictor.
    Foreign {
        path: PathBuf,
        error: serde_json::Error,
    },
    /// The predictor of the file has another version, or is damaged.
    Refused {
        path: PathBuf,
        error: LoadError,
    },
    /// The file was written in another form.
    Form {
        path: PathBuf,
        found: u32,
    },
    /// The file names a learner that this program does not have.
    Method {
        path: PathBuf,
        name: String,
    },
}

impl fmt::Display for PredictorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PredictorError::Untimed { group } => write!(
                f,
                "group {group} has samples without a measured time, or fewer than two samples; leave out the former and collect more"
            ),
            PredictorError::Empty => write!(f, "there are no samples"),
            PredictorError::Differ {
                what,
                found,
                expected,
            } => write!(f, "a sample has the {what} {found} instead of {expected}"),
            PredictorError::Unread { group } => write!(
                f,
                "a sample of group {group} does not say what reading its code tells, which the predictor needs; collect it again, or learn from the counts alone (--features counts)"
            ),
            PredictorError::Learner(error) => write!(f, "cannot learn from the samples: {error}"),
            PredictorError::File { path, error } => write!(f, "{}: {error}", path.display()),
            PredictorError::Foreign { path, error } => {
                write!(f, "{}: not a saved predictor: {error}", path.display())
            }
            PredictorError::Refused { path, error } => write!(f, "{}: {error}", path.display()),
            PredictorError::Form { path, found } => write!(
                f,
                "{}: the predictor's file has form {found}, and this program reads form {FORM}; train the predictor again",
                path.display()
            ),
            PredictorError::Method { path, name } => write!(
                f,
                "{}: the predictor is of kind `{name}`, which this program does not have",
                path.display()
            ),
        }
    }
}

impl std::error::Error for PredictorError {}

impl From<Unfit> for PredictorError {
    fn from(error: Unfit) -> PredictorError {
        PredictorError::Learner(error)
    }
}

impl fmt::Debug for Predictor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Predictor").field(&self.about).finish()
    }
}

impl Predictor {
    /// Learns from timed samples of one processor and one type of kernel.
    ///
    /// Parameters are chosen on a part of each group. Then the learner learns from all samples.
    ///
    /// # Errors
    /// If samples do not belong together, lack what is needed, or cannot be learned from.
    pub fn train(samples: &[&Sample], options: TrainOptions) -> Result<Predictor, PredictorError> {
        let first = *samples.first().ok_or(PredictorError::Empty)?;
        let mut about = About {
            form: FORM,
            cpu: first.cpu.clone(),
            target: first.target.clone(),
            kind: first.kind.clone(),
            method: options.method.name.into(),
            feature_version: FEATURE_VERSION,
            features: options.features,
            shared_levels: first.statistics.shared.len(),
            samples: samples.len(),
            parameters: BTreeMap::new(),
            validation: BTreeMap::new(),
        };
        about.check(samples)?;
        let mut rng = Pcg64Mcg::seed_from_u64(options.seed);
        let (mut all, mut learning, mut judging) =
            (Table::default(), Table::default(), Table::default());
        let mut judged = Vec::new();
        for (group, samples) in by_group(samples) {
            let rows = about.labelled(group, &samples)?;
            let mut order: Vec<usize> = (0..samples.len()).collect();
            order.shuffle(&mut rng);
            let share = (samples.len() as f64 * options.validation).round() as usize;
            let (validation, rest) = order.split_at(share.clamp(1, samples.len() - 1));
            judging.take(&rows, validation);
            learning.take(&rows, rest);
            judged.push((group, validation.len()));
            all.take(&rows, &(0..samples.len()).collect::<Vec<_>>());
        }
        let method = options.method;
        let parameters = method.chosen(&learning, &judging, options.seed)?;
        let names = method.parameters.iter().map(|n| n.to_string());
        about.parameters = names.zip(parameters.iter().copied()).collect();
        let chosen = method.fitted(&learning, &parameters, options.seed)?;
        let mut from = 0;
        for (group, n) in judged {
            let scores: Vec<f64> = judging.rows[from..from + n]
                .iter()
                .map(|r| chosen.predict(r))
                .collect();
            // Labels order as times do; a time relative to the mean is one more than its label.
            let times: Vec<f64> = judging.labels[from..from + n]
                .iter()
                .map(|l| l + 1.0)
                .collect();
            let metrics = Metrics::of(&times, &scores);
            about
                .validation
                .extend(metrics.map(|m| (group.to_string(), m)));
            from += n;
        }
        let learner = method.fitted(&all, &parameters, options.seed)?;
        Ok(Predictor { about, learner })
    }

    pub fn about(&self) -> &About {
        &self.about
    }

    /// Scores of candidates of one group, in the order in which they came. Give all that were seen so far: with
    /// [`Window::Dynamic`] earlier samples get new scores, and only scores of one call can be compared.
    ///
    /// # Errors
    /// If a sample is of another processor, type of kernel or set of caches, or lacks what reading tells and the predictor needs.
    pub fn score(&self, seen: &[&Sample], window: Window) -> Result<Vec<f64>, PredictorError> {
        self.about.check(seen)?;
        self.score_against(seen, &window.means(seen))
    }

    /// Scores under means that are known.
    ///
    /// # Errors
    /// As those of [`Predictor::score`].
    pub fn score_against(
        &self,
        samples: &[&Sample],
        means: &Means,
    ) -> Result<Vec<f64>, PredictorError> {
        self.about.check(samples)?;
        let features = |s: &&Sample| means.features(s, self.about.features);
        let scores = samples.iter().map(|s| self.learner.predict(&features(s)));
        Ok(scores.collect())
    }

    /// Writes the predictor's file: one JSON object.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), PredictorError> {
        let saved = Saved {
            about: self.about.clone(),
            model: self.learner.text(self.about.feature_version),
        };
        let text = serde_json::to_string_pretty(&saved).map_err(std::io::Error::from);
        text.and_then(|text| std::fs::write(path, text + "\n"))
            .map_err(|error| PredictorError::File {
                path: path.into(),
                error,
            })
    }

    /// Reads a predictor's file.
    ///
    /// # Errors
    /// If the file cannot be read, is no predictor, or was made with another form, feature version or learner.
    pub fn load(path: &Path) -> Result<Predictor, PredictorError> {
        let text = std::fs::read_to_string(path).map_err(|error| PredictorError::File {
            path: path.into(),
            error,
        })?;
        Predictor::of_text(&text, path)
    }

    /// The predictor of a file's text; `path` is what errors call it.
    ///
    /// # Errors
    /// As those of [`Predictor::load`].
    pub(crate) fn of_text(text: &str, path: &Path) -> Result<Predictor, PredictorError> {
        let owned = || path.to_path_buf();
        let saved: Saved = serde_json::from_str(text).map_err(|error| PredictorError::Foreign {
            path: owned(),
            error,
        })?;
        let about = saved.about;
        if about.form != FORM {
            return Err(PredictorError::Form {
                path: owned(),
                found: about.form,
            });
        }
        let method = Method::named(&about.method).ok_or_else(|| PredictorError::Method {
            path: owned(),
            name: about.method.clone(),
        })?;
        let refused = |error| PredictorError::Refused {
            path: owned(),
            error,
        };
        if about.feature_version != FEATURE_VERSION {
            return Err(refused(LoadError::Features {
                found: about.feature_version,
                expected: FEATURE_VERSION,
            }));
        }
        let learner = method.loaded(&saved.model, FEATURE_VERSION);
        let learner = learner.map_err(refused)?;
        Ok(Predictor { about, learner })
    }
}

impl About {
    /// Checks that the samples have the features that the predictor needs.
    fn check(&self, samples: &[&Sample]) -> Result<(), PredictorError> {
        let differ = |what, found: &str, expected: &str| match found == expected {
            true => Ok(()),
            false => Err(PredictorError::Differ {
                what,
                found: found.into(),
                expected: expected.into(),
            }),
        };
        let levels = self.shared_levels.to_string();
        for s in samples {
            differ("processor", &s.cpu, &self.cpu)?;
            differ("type of kernel", &s.kind, &self.kind)?;
            if !s.target.is_empty() && !self.target.is_empty() {
                differ("instruction set", &s.target, &self.target)?;
            }
            let found = s.statistics.shared.len().to_string();
            differ("number of caches behind the first", &found, &levels)?;
            if self.features > FeatureSet::Counts && s.code.is_none() {
                let group = s.group.clone();
                return Err(PredictorError::Unread { group });
            }
        }
        Ok(())
    }

    /// Features and labels of the samples of a group: times, normalised by the group.
    fn labelled(&self, group: &str, samples: &[&Sample]) -> Result<Table, PredictorError> {
        let timed = samples.iter().filter_map(|s| s.time_ns);
        let times: Vec<f64> = timed.filter(|t| *t > 0.0).collect();
        if times.len() < samples.len().max(2) {
            let group = group.into();
            return Err(PredictorError::Untimed { group });
        }
        let means = Means::of(samples);
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        Ok(Table {
            rows: samples
                .iter()
                .map(|s| means.features(s, self.features))
                .collect(),
            labels: times.iter().map(|t| normalised(*t, mean)).collect(),
        })
    }
}

impl Table {
    fn take(&mut self, from: &Table, rows: &[usize]) {
        self.rows.extend(rows.iter().map(|i| from.rows[*i].clone()));
        self.labels.extend(rows.iter().map(|i| from.labels[*i]));
    }
}

/// Samples by their groups, in the order in which they came.
pub fn by_group<'a>(samples: &[&'a Sample]) -> BTreeMap<&'a str, Vec<&'a Sample>> {
    let mut groups: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
    for s in samples {
        groups.entry(&s.group).or_default().push(s);
    }
    groups
}
