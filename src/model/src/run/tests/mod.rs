//! Tests of the run: a small world around it in which an adversary chooses every next step, and what runs may cost.

mod checks;
mod steps;
mod world;

mod exhaustive;
mod facts;
mod walks;
