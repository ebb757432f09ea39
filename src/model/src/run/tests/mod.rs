//! Tests of the run: a small world around it in which an adversary chooses every next step.

mod checks;
mod exhaustive;
mod steps;
mod world;
