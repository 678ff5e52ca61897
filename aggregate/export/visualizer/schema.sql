-- The tables of schema 3.5. Those of inputs and comparisons stay empty: the pages need them.
CREATE TABLE report_metadata (key text UNIQUE, value text);
CREATE TABLE devices (
	device_id int, num_y_cores int, num_x_cores int, num_y_compute_cores int, num_x_compute_cores int,
	worker_l1_size int, l1_num_banks int, l1_bank_size int, address_at_first_l1_bank int,
	address_at_first_l1_cb_buffer int, num_banks_per_storage_core int, num_compute_cores int,
	num_storage_cores int, total_l1_memory int, total_l1_for_tensors int,
	total_l1_for_interleaved_buffers int, total_l1_for_sharded_buffers int, cb_limit int,
	rank int NOT NULL DEFAULT 0);
CREATE TABLE operations (
	operation_id int, name text, duration float, rank int NOT NULL DEFAULT 0, UNIQUE(operation_id, rank));
CREATE TABLE operation_arguments (operation_id int, name text, value text, rank int NOT NULL DEFAULT 0);
CREATE TABLE source_files (id INTEGER PRIMARY KEY, path text UNIQUE NOT NULL, contents text);
CREATE TABLE stack_traces (
	operation_id int, stack_trace text, source_file_id int REFERENCES source_files(id),
	rank int NOT NULL DEFAULT 0);
CREATE TABLE buffers (
	operation_id int, device_id int, address int, max_size_per_bank int, buffer_type int,
	buffer_layout int, rank int NOT NULL DEFAULT 0);
CREATE TABLE buffer_chunks (
	operation_id int, device_id int, address int, bank_id int, core_x int, core_y int,
	chunk_address int, chunk_size int, page_size int, num_pages int, buffer_type int,
	rank int NOT NULL DEFAULT 0);
CREATE TABLE captured_graph (operation_id int, captured_graph text, rank int NOT NULL DEFAULT 0);
CREATE TABLE errors (
	operation_id int, operation_name text, error_type text, error_message text, stack_trace text,
	timestamp text, rank int NOT NULL DEFAULT 0);
CREATE TABLE tensors (
	tensor_id int, shape text, dtype text, layout text, memory_config text, device_id int,
	address int, buffer_type int, rank int NOT NULL DEFAULT 0, storage_type text,
	UNIQUE(tensor_id, rank));
CREATE TABLE device_tensors (tensor_id int, device_id int, address int, rank int NOT NULL DEFAULT 0);
CREATE TABLE input_tensors (operation_id int, input_index int, tensor_id int, rank int NOT NULL DEFAULT 0);
CREATE TABLE output_tensors (operation_id int, output_index int, tensor_id int, rank int NOT NULL DEFAULT 0);
CREATE TABLE tensor_lifetime (
	tensor_id int, producer_operation_id int, last_use_operation_id int,
	deallocate_operation_id int, producer_source_file text, producer_source_line int,
	last_use_source_file text, last_use_source_line int, rank int NOT NULL DEFAULT 0,
	UNIQUE(tensor_id, rank));
CREATE TABLE local_tensor_comparison_records (
	tensor_id int, golden_tensor_id int, matches int, desired_pcc float, actual_pcc float,
	rank int NOT NULL DEFAULT 0, UNIQUE(tensor_id, rank));
CREATE TABLE global_tensor_comparison_records (
	tensor_id int, golden_tensor_id int, matches int, desired_pcc float, actual_pcc float,
	rank int NOT NULL DEFAULT 0, UNIQUE(tensor_id, rank));
