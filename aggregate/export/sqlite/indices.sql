CREATE INDEX buffers_by_birth ON buffers (region, birth_ns);
CREATE INDEX buffers_by_address ON buffers (address);
CREATE INDEX circular_buffers_by_program ON circular_buffers (program);
CREATE INDEX events_by_time ON events (time_ns);
