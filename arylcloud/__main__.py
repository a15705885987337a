from arylcloud.cli.main import main

main()
