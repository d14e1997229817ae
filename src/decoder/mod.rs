//! Record to event: what a record must look like to be one.
