//! The command line as a user meets it: every command's way to success, and
//! one clear error for everything that is the user's.

mod benched;
mod beside;
mod boards;
mod calibrated;
mod commands;
mod energy;
mod errors;
mod executables;
mod explained;
mod howto;
mod integers;
mod limits;
mod machines;
mod measuring;
mod outputs;
mod padded;
mod predicted;
mod program;
mod reading;
mod replayed;
mod screens;
mod selected;
mod simulated;
mod stopped;
mod stored;
mod training;
mod variants;
