// Package bpf holds ttmem's kernel side: C in src/, its records and maps, and
// the bindings that bpf2go makes from it. The generated files are committed, so
// that building ttmem needs no clang; `make generate` makes them again,
// with the clang that is named here.
package bpf

//go:generate go tool bpf2go -tags linux -target bpfel -cc clang-19 -strip llvm-strip-19 -no-global-types -type header -type stack_ids -type bank_info -type shard_request -type code -type core_range -type chain -type buffer_record -type free_record -type failed_record -type failed_buffer -type clear_record -type device_record -type cb_record -type program_end_record -type program_met_record -type kernel_record -type process_record -type layout -type process -type object_key -type native_record -type python_record -type code_record -type text -type python_call -type python_offsets -type mapping -type space -type chunk -type rule -type find_direct_map -type probe -type record_kind -type lost_cause -type failed_flag -type device_flag -type cb_flag -type static_kind -type program_flag -type process_flag -type python_flag -type stack_end -type layout_limit -type table_index -type rules_limit -type direct_map_search Kernel src/ttmem.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -fdebug-prefix-map=$PWD=.
