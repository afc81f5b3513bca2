//! Running candidates on processors that are not here, by counting instead of timing
//! (Instruction-accurate simulators), and predicting from counts which candidates are fast.

mod addresses;
mod cache;
mod cpus;
mod emulator;
mod executable;
mod external;
mod features;
mod frame;
mod methods;
mod metrics;
mod own;
mod plugin;
mod predictor;
mod sample;
mod shipped;
mod simulator;
mod statistics;

pub use addresses::NotFollowed;
pub use cache::{Access, CacheSetting, Caches, Geometry, Hits, LINE, LevelCounts};
pub use cpus::{Cpu, cpus};
pub use emulator::{Emulator, EmulatorError, output, output_unless};
pub use executable::{ExecutableError, PERIOD, Runner, contents, model_executable};
pub use external::External;
pub use features::{FEATURE_VERSION, FeatureSet, Means, Window};
pub use methods::{METHODS, Method, Regressor};
pub use metrics::{Metrics, predicted_order};
pub use own::{Kernel, simulate};
pub use plugin::{Emulated, Plugin};
pub use predictor::{About, Predictor, PredictorError, TrainOptions, by_group};
pub use sample::{ReadError, Sample, timed_once};
pub use shipped::{SHIPPED, Shipped};
pub use simulator::{Own, Simulated, Simulator, SimulatorError};
pub use statistics::{Sampled, Statistics};
