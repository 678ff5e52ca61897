from ttmem.program import main

main()
