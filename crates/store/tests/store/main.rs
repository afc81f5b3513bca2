//! The store from outside: what goes in comes out, in every form, from every
//! version, with several writers, and after a kill.

mod events;
mod jsonl;
mod lookups;
mod opening;
mod processes;
mod round_trip;
mod samples;
mod t4;
mod tables;
